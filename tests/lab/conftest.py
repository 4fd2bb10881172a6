from tests.lab.fixtures import container_rootfs, device_folder, make_device, rootfs

__all__ = ["container_rootfs", "device_folder", "make_device", "rootfs"]
