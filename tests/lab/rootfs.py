"""Root file systems by debootstrap: made once a run, or taken from a cache folder outside the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.lab.privileges import missing_privileges

SUITE = "bookworm"
PYTHON_OF_SUITE = (3, 11)
CONTAINER_SUITE = "trixie"  # its podman knows Quadlet
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgellm-tests"
TOOLS = {"debootstrap": "debootstrap", "systemd-nspawn": "systemd-container"}  # command: package
# What a device needs to be one, and what tests look at it with.
DEVICE_PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "libpam-systemd", "udev"),
    *("python3", "python3-venv", "ca-certificates", "iproute2", "procps"),
)
# Of CONTAINER_SUITE. The ssh server is there for those that manage devices, and not enabled.
CONTAINER_DEVICE_PACKAGES = (*DEVICE_PACKAGES, *("podman", "crun", "netavark", "aardvark-dns", "openssh-server"))
OFF = ("ssh.service", "ssh.socket", "podman-auto-update.timer", "podman.socket")


def missing_tools() -> str:
    """What this machine lacks to make a root file system and boot it, or ""."""
    if missing := missing_privileges():
        return missing
    absent = [package for command, package in TOOLS.items() if shutil.which(command) is None]
    return f"needs {' and '.join(absent)}" if absent else ""


def mirror_of_this_machine() -> str:
    """Where this machine's apt takes one of the suites from, and so has all of them; or ""."""
    try:
        printed = check_output(
            ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"]
        )
    except FileNotFoundError:
        return ""
    for line in printed.splitlines():
        uri, codename, component = line.split()
        if codename in (SUITE, CONTAINER_SUITE) and component == "main":
            return uri
    return ""


def make_rootfs(root: Path, packages: Sequence[str], mirror: str, suite: str = SUITE) -> None:
    """A minimal system in the folder ``root``, which reaches its package index as this machine does."""
    debootstrap(root, packages, mirror, suite)
    for file in Path("/etc/apt/apt.conf.d").iterdir():
        if file.is_file() and "Proxy" in file.read_text(errors="replace"):
            shutil.copy(file, root / "etc/apt/apt.conf.d" / file.name)
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, root / str(CERTIFICATES).lstrip("/"))


def debootstrap(root: Path, packages: Sequence[str], mirror: str, suite: str) -> None:
    """A minimal system as the distribution has it. Downloads are kept."""
    downloads = CACHE_FOLDER / f"debs-{suite}"
    downloads.mkdir(parents=True, exist_ok=True)
    check_output(
        [
            *("debootstrap", "--variant=minbase", f"--include={','.join(packages)}"),
            *(f"--cache-dir={downloads}", suite, str(root), mirror),
        ]
    )


def device_rootfs(packages: Sequence[str] = DEVICE_PACKAGES, suite: str = SUITE) -> Path:
    """The root file system that devices lie over; never written to. One process makes it, others wait."""
    name = hashlib.sha256(" ".join([suite, *sorted(packages)]).encode()).hexdigest()[:12]
    root = CACHE_FOLDER / f"rootfs-{suite}-{name}"
    CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
    with (CACHE_FOLDER / f"{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            unfinished = root.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make_rootfs(unfinished, packages, mirror_of_this_machine(), suite)
            # A journal that outlives a power cut; an identity of each device's own.
            (unfinished / "var/log/journal").mkdir(exist_ok=True)
            (unfinished / "etc/machine-id").unlink(missing_ok=True)
            for unit in OFF:
                for link in (unfinished / "etc/systemd/system").glob(f"*.wants/{unit}"):
                    link.unlink()
            unfinished.rename(root)
    return root


def extended_rootfs(base: Path, packages: Sequence[str]) -> Path:
    """A copy of ``base`` with further packages, as cached as that is."""
    name = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:12]
    root = base.with_name(f"{base.name}-{name}")
    with (CACHE_FOLDER / f"{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            unfinished = root.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            check_output(["cp", "-a", "--reflink=auto", str(base), str(unfinished)])
            for arguments in (("update",), ("install", "--yes", "--no-install-recommends", *packages), ("clean",)):
                noninteractive = ["env", "DEBIAN_FRONTEND=noninteractive"]
                check_output(["chroot", str(unfinished), *noninteractive, "apt-get", "--quiet", *arguments])
            unfinished.rename(root)
    return root


def check_output(argv: Sequence[str]) -> str:
    completed = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert completed.returncode == 0, f"{argv[0]} failed:\n{completed.stdout[-3000:]}"
    return completed.stdout
