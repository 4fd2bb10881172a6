"""A board's own name: ``edgellm-`` and four characters of its serial number, the same whenever it is asked for."""

from __future__ import annotations

import hashlib
import re
import socket
from pathlib import Path

from edgellm.durable_file import write_durably
from edgellm.host.paths import HostPaths

PREFIX = "edgellm-"
SUFFIX_CHARACTERS = 4
# No letters that are taken for others.
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
# Names that an image or a BSP comes with, rather than an administrator's choice.
NAMES_OF_IMAGES = ("", "edgellm", "localhost", "localhost.localdomain", "debian", "ubuntu", "tegra-ubuntu", "jetson")
# Not that of DMI: many machines share one, and a container sees its host's.
SERIAL_FILE = "proc/device-tree/serial-number"
PUBLIC_MODE = 0o644
_USELESS_SERIALS = ("", "0", "none")


def board_name(paths: HostPaths) -> str:
    """By the serial number, and by the machine's id where the board has none."""
    serial = _read(paths.at(SERIAL_FILE)).strip("\0 \n")
    source = (
        f"serial {serial}"
        if serial.lower() not in _USELESS_SERIALS
        else f"machine {_read(paths.at('etc/machine-id')).strip()}"
    )
    number = int.from_bytes(hashlib.sha256(f"edgellm board name {source}".encode()).digest(), "big")
    letters = []
    for _ in range(SUFFIX_CHARACTERS):
        number, index = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[index])
    return PREFIX + "".join(letters)


def take_name(paths: HostPaths) -> str:
    """What came of it, for people. A name that an administrator chose stays."""
    present = _read(paths.at("etc/hostname")).strip()
    name = board_name(paths)
    if present.lower() not in NAMES_OF_IMAGES and present != name:
        return f"{present}, as it was set"
    write_durably(paths.at("etc/hostname"), f"{name}\n".encode(), PUBLIC_MODE)
    _put_into_hosts(paths.at("etc/hosts"), name)
    if paths.root == Path("/"):
        socket.sethostname(name)
    return name


def _put_into_hosts(path: Path, name: str) -> None:
    lines = [line for line in _read(path).splitlines() if not re.match(r"127\.0\.1\.1\s", line)]
    text = "\n".join([*(lines or ["127.0.0.1\tlocalhost"]), f"127.0.1.1\t{name}.local {name}"]) + "\n"
    write_durably(path, text.encode(), PUBLIC_MODE)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
