"""Wheels for devices: edgellm as a release of any version, and what it depends on, for devices without a network."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import importlib.util
import io
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.lab.rootfs import CACHE_FOLDER

CHECKOUT = Path(__file__).resolve().parents[2]
LOCK = CHECKOUT / ".ci/requirements.lock"
Change = Callable[[str], str]


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout without its C++ part, which is taken as it was built."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", str(CHECKOUT), "--quiet", "--no-deps", "--no-build-isolation"),
            *("--config-settings=wheel.cmake=false", f"--wheel-dir={folder}"),
        ],
        check=True,
    )
    (wheel,) = folder.glob("edgellm-*.whl")
    return wheel


def native_module() -> Path:
    found = importlib.util.find_spec("edgellm._native")
    assert found is not None, "the C++ module is not built"
    return Path(str(found.origin))


def release_wheel(
    wheel: Path,
    folder: Path,
    version: str,
    *,
    changes: Mapping[str, Change] | None = None,
    dependencies: str | None = None,
) -> Path:
    """The same edgellm under another version, with its C++ part. ``changes`` are to files of the wheel, by name.

    ``dependencies`` is a folder on the device that has what edgellm depends on: the wheel then asks for nothing.
    """
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(wheel) as archive:
        (old,) = re.findall(r"edgellm-([^/\n]+)\.dist-info/METADATA", "\n".join(archive.namelist()))
        for name in archive.namelist():
            files[name.replace(f"edgellm-{old}.dist-info", f"edgellm-{version}.dist-info")] = archive.read(name)
    native = native_module()
    files[f"edgellm/{native.name}"] = native.read_bytes()
    information = f"edgellm-{version}.dist-info"
    metadata = files[f"{information}/METADATA"].decode()
    metadata = re.sub(r"(?m)^Version: .*$", f"Version: {version}", metadata, count=1)
    if dependencies is not None:
        metadata = re.sub(r"(?m)^Requires-Dist: .*\n", "", metadata)
        files["edgellm-dependencies.pth"] = f"{dependencies}\n".encode()
    files[f"{information}/METADATA"] = metadata.encode()
    renaming: Mapping[str, Change] = {"edgellm/__init__.py": lambda text: text.replace(f'"{old}"', f'"{version}"')}
    for name, change in {**(renaming if version != old else {}), **(changes or {})}.items():
        changed = change(files[name].decode())
        assert changed.encode() != files[name], name
        files[name] = changed.encode()
    del files[f"{information}/RECORD"]
    record = [f"{name},{_record_hash(content)},{len(content)}" for name, content in files.items()]
    files[f"{information}/RECORD"] = "\n".join([*record, f"{information}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / wheel.name.replace(f"edgellm-{old}-", f"edgellm-{version}-")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    made.write_bytes(content.getvalue())
    return made


def _record_hash(content: bytes) -> str:
    return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip('=')}"


def dependency_wheels() -> Path:
    """A folder with the wheels of all that edgellm depends on, as they are locked. Made once, also by several."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    wanted: list[str] = project["dependencies"]
    key = hashlib.sha256("\n".join([*wanted, LOCK.read_text(), sys.version]).encode()).hexdigest()[:12]
    folder = CACHE_FOLDER / f"wheels-{key}"
    CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
    with (CACHE_FOLDER / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            # Not a download alone: one of them is published as source.
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"),
                    *(f"--wheel-dir={unfinished}", f"--constraint={LOCK}", *wanted),
                ],
                check=True,
            )
            unfinished.rename(folder)
    return folder


def install_dependencies(folder: Path) -> None:
    """All that edgellm depends on, compiled, for devices that this environment's packages cannot be bound into."""
    quietly = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    wheels = sorted(dependency_wheels().glob("*.whl"))
    subprocess.run([sys.executable, "-m", "pip", "install", *quietly, f"--target={folder}", *wheels], check=True)


def release_folder(wheel: Path, folder: Path, version: str) -> Path:
    """Fill ``folder`` as an operator hands it over: edgellm as ``version``, and all that it depends on."""
    release_wheel(wheel, folder, version)
    for each in dependency_wheels().glob("*.whl"):
        if each.stat().st_dev == folder.stat().st_dev:
            (folder / each.name).hardlink_to(each)
        else:
            shutil.copy(each, folder)
    return folder
