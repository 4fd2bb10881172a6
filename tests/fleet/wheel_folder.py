"""A folder of wheels as an operator hands it to the role edgellm: that of this checkout and all that it needs."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tests.lab.rootfs import CACHE_FOLDER
from tests.service.appliance import CHECKOUT, build_wheel

DOWNLOAD_DEADLINE_SECONDS = 1800.0
LOCK_FILE = CHECKOUT / ".ci" / "requirements.lock"


def make_wheel_folder(folder: Path, work: Path) -> Path:
    """Fill ``folder``, without the network where the wheels were downloaded before."""
    folder.mkdir()
    for wheel in downloaded_dependencies().glob("*.whl"):
        os.link(wheel, folder / wheel.name) if _same_disk(wheel, folder) else shutil.copy(wheel, folder)
    add_native_module(build_wheel(work), folder)
    return folder


def downloaded_dependencies() -> Path:
    """Outside the checkout, by what is asked for; one process downloads, others wait."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [str(requirement) for requirement in project["project"]["dependencies"]]
    name = hashlib.sha256(repr((sorted(wanted), LOCK_FILE.read_text(), sys.version_info[:2])).encode()).hexdigest()[:12]
    target = CACHE_FOLDER / f"wheels-{name}"
    CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
    with (CACHE_FOLDER / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--constraint", str(LOCK_FILE)]
            command += ["--wheel-dir", str(unfinished), *wanted]
            completed = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_DEADLINE_SECONDS, check=False
            )
            assert completed.returncode == 0, completed.stdout + completed.stderr
            unfinished.rename(target)
    return target


def add_native_module(wheel: Path, folder: Path) -> Path:
    """The wheel with the C++ module that this environment has: building it anew would take minutes."""
    found = importlib.util.find_spec("edgellm._native")
    assert found is not None, "the C++ module is not built"
    native = Path(str(found.origin))
    content, name = native.read_bytes(), f"edgellm/{native.name}"
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    result = folder / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.infolist():
            data = source.read(member)
            if member.filename.endswith(".dist-info/RECORD"):
                data = f"{name},sha256={digest},{len(content)}\n".encode() + data
            target.writestr(member, data)
        target.writestr(name, content)
    return result


def _same_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev
