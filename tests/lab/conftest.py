from tests.lab.fixtures import device_folder, make_device, rootfs

__all__ = ["device_folder", "make_device", "rootfs"]
