"""A folder of wheels for devices that have what edgellm depends on bound into them."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import zipfile
from pathlib import Path

from tests.service.appliance import DEPENDENCIES


def standalone_wheel(wheel: Path, folder: Path) -> Path:
    """``folder`` with this wheel alone: with its C++ part, asking for nothing, and finding its dependencies bound."""
    found = importlib.util.find_spec("edgellm._native")
    assert found is not None, "the C++ module is not built"
    native = Path(str(found.origin))
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            files[name] = archive.read(name)
    (metadata,) = [name for name in files if name.endswith(".dist-info/METADATA")]
    files[metadata] = re.sub(rb"(?m)^Requires-Dist: .*\n", b"", files[metadata])
    files[f"edgellm/{native.name}"] = native.read_bytes()
    files["edgellm-dependencies.pth"] = f"{DEPENDENCIES}\n".encode()
    record = metadata.replace("METADATA", "RECORD")
    del files[record]
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in sorted(files.items())]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    folder.mkdir()
    with zipfile.ZipFile(folder / wheel.name, "w") as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), content)
    return folder


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
