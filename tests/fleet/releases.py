"""Releases for boards that have what edgellm depends on: the wheel of this checkout under other versions, or broken."""

from __future__ import annotations

import importlib.util
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.service.appliance import DEPENDENCIES

Change = Callable[[str], str]
# Ends with one line as soon as it is started as a service.
ENDS_AT_ITS_START: Mapping[str, Change] = {
    "edgellm/cli/serve.py": lambda text: text.replace(
        ") -> int:\n", ') -> int:\n    raise __import__("edgellm.errors").errors.ConfigError("built to end")\n', 1
    )
}


def make_release(wheel: Path, folder: Path, version: str, changes: Mapping[str, Change] | None = None) -> Path:
    """The wheel in ``folder`` that installs ``wheel`` as ``version``, with the C++ module that is built here."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (information,) = {name.partition("/")[0] for name in files if name.endswith(".dist-info/METADATA")}
    old = information.removeprefix("edgellm-").removesuffix(".dist-info")
    found = importlib.util.find_spec("edgellm._native")
    assert found is not None, "the C++ module is not built"
    native = Path(str(found.origin))
    files[f"edgellm/{native.name}"] = native.read_bytes()
    files["edgellm-dependencies.pth"] = f"{DEPENDENCIES}\n".encode()
    edits: dict[str, Change] = {
        f"{information}/METADATA": lambda text: re.sub(
            r"(?m)^Requires-Dist: .*\n", "", text.replace(f"\nVersion: {old}\n", f"\nVersion: {version}\n")
        ),
        "edgellm/__init__.py": lambda text: text.replace(f'"{old}"', f'"{version}"'),
        **(changes or {}),
    }
    for name, edit in edits.items():
        before = files[name].decode()
        files[name] = edit(before).encode()
        assert files[name] != before.encode(), f"{name} has nothing of what was to change"
    del files[f"{information}/RECORD"]
    files = {name.replace(information, f"edgellm-{version}.dist-info"): content for name, content in files.items()}
    record = f"edgellm-{version}.dist-info/RECORD"
    files[record] = "".join(f"{name},,\n" for name in [*files, record]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / wheel.name.replace(f"edgellm-{old}-", f"edgellm-{version}-")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return made
