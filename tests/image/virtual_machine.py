"""A machine of its own in qemu, by software emulation: with the kernel, disk and network card that devices lack."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.rootfs import check_output

PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "mkfs.ext4": "e2fsprogs", "sfdisk": "fdisk"}  # command: package
# What a root file system needs to be a machine's: a kernel, and the tools that grow its disk.
MACHINE_PACKAGES = ("linux-image-cloud-amd64", "cloud-guest-utils", "fdisk")
PARTITION_START_BYTES = 1 << 20
SECTOR_BYTES = 512
SPARE_BYTES = 300 << 20  # of a root file system before it has grown
DISK_BYTES = 6 << 30
MEMORY_MIB = 3072
POLL_SECONDS = 0.5
END_DEADLINE_SECONDS = 300.0
NETWORK = "[Match]\nType=ether\n[Network]\nDHCP=ipv4\n"


def missing_programs() -> str:
    """What this machine lacks, or ""."""
    absent = [package for command, package in PROGRAMS.items() if shutil.which(command) is None]
    return f"needs {' and '.join(absent)}" if absent else ""


def make_disk(root: Path, disk: Path) -> None:
    """A disk with one partition that holds ``root``, and room behind it."""
    (root / "etc/fstab").write_text("LABEL=root / ext4 defaults 0 1\n")
    (root / "etc/systemd/network").mkdir(parents=True, exist_ok=True)
    (root / "etc/systemd/network/10-lab.network").write_text(NETWORK)
    check_output(["chroot", str(root), "systemctl", "--quiet", "enable", "systemd-networkd.service"])
    used_bytes = int(check_output(["du", "--summarize", "--block-size=1", str(root)]).split()[0])
    size_bytes = (int(used_bytes * 1.1) + SPARE_BYTES) // PARTITION_START_BYTES * PARTITION_START_BYTES
    partition = disk.with_suffix(".partition")
    partition.touch()
    subprocess.run(["truncate", f"--size={size_bytes}", partition], check=True)
    check_output(["mkfs.ext4", "-q", "-F", "-L", "root", "-d", str(root), str(partition)])
    subprocess.run(["truncate", f"--size={DISK_BYTES}", disk], check=True)
    start, size = (count_bytes // SECTOR_BYTES for count_bytes in (PARTITION_START_BYTES, size_bytes))
    table = f"label: gpt\nstart={start}, size={size}, type=linux\n"
    subprocess.run(["sfdisk", "--quiet", disk], input=table, text=True, check=True, capture_output=True)
    where = [f"of={disk}", f"bs={PARTITION_START_BYTES}", "seek=1"]
    check_output(["dd", f"if={partition}", *where, "conv=notrunc,sparse", "status=none"])
    partition.unlink()


class VirtualMachine:
    """``port`` on this machine's loopback is the guest's ``guest_port``. Nothing else leads in or out."""

    def __init__(self, folder: Path, disk: Path, boot: Path, guest_port: int) -> None:
        self._folder = folder
        self._disk = disk
        (self._kernel,), (self._memory_disk,) = boot.glob("vmlinuz-*"), boot.glob("initrd.img-*")
        self._guest_port = guest_port
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._boots = 0

    def boot(self) -> None:
        """Return at once."""
        self._boots += 1
        network = f"user,model=virtio-net-pci,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:{self._guest_port}"
        with (self._folder / "qemu.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"),
                    *("-m", str(MEMORY_MIB), "-display", "none", "-monitor", "none", "-no-reboot"),
                    *("-serial", f"file:{self._console}", "-qmp", f"unix:{self._control},server=on,wait=off"),
                    *("-kernel", str(self._kernel), "-initrd", str(self._memory_disk)),
                    *("-append", "console=ttyS0 root=LABEL=root rw quiet"),
                    *("-drive", f"file={self._disk},format=raw,if=virtio", "-nic", network),
                    *("-device", "virtio-rng-pci"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def power_button(self) -> None:
        """Return when it has shut down, as a board does when its button is pressed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(END_DEADLINE_SECONDS)
            control.connect(str(self._control))
            answers = control.makefile("r")
            for command in ("qmp_capabilities", "system_powerdown"):
                control.sendall(json.dumps({"execute": command}).encode() + b"\n")
                while "return" not in json.loads(answers.readline()):
                    pass  # greetings and events
        assert self._process is not None
        self._process.wait(END_DEADLINE_SECONDS)

    def power_cut(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_for(self, condition: Callable[[], object], what: str, deadline_seconds: float) -> None:
        deadline = time.monotonic() + deadline_seconds
        while not condition():
            assert self._process is not None
            assert self._process.poll() is None, f"it ended before {what}:\n{self.console[-3000:]}"
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.console[-3000:]}"
            time.sleep(POLL_SECONDS)

    def read(self, path: str) -> str:
        """A file of its disk, while it is off."""
        assert self._process is None or self._process.poll() is not None
        said = self._ask_disk(["-R", f"cat {path}"])
        assert said, f"{path} is not on the disk"
        return said

    @property
    def size_bytes(self) -> int:
        """Of its file system, while it is off."""
        said = self._ask_disk(["-R", "stats -h"])
        numbers = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
        return int(numbers["Block count"]) * int(numbers["Block size"])

    def _ask_disk(self, options: Sequence[str]) -> str:
        disk = f"{self._disk}?offset={PARTITION_START_BYTES}"
        return subprocess.run(["debugfs", *options, disk], capture_output=True, text=True, check=True).stdout

    @property
    def console(self) -> str:
        """What it has shown since it was switched on."""
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    @property
    def _console(self) -> Path:
        return self._folder / f"console-{self._boots}.log"

    @property
    def _control(self) -> Path:
        return self._folder / "control.sock"
