"""Library probe: which of the GPU driver, CUDA's runtime and TensorRT can be loaded here, and what they say.

They are loaded in a process of their own, ``python -m edgellm.engines.tensorrt.library_probe``, which prints JSON:
a driver that crashes or hangs takes nothing with it, and no CUDA state stays in a process that may fork.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 60.0
BINDINGS_PACKAGE = "tensorrt"
PACKAGED_LIBRARIES = "tensorrt_libs"
DRIVER_NAME = "libcuda.so.1"

_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR = 75, 76
_NO_DEVICE = 100


@dataclass(frozen=True, slots=True)
class Library:
    """``name`` is the library's own (libcudart.so.13), "" for none; ``problem`` says why it cannot be used."""

    name: str = ""
    version: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Libraries:
    """``sms`` has the compute capability times ten of every GPU that the driver shows to this process."""

    driver: Library = Library(problem="not looked for")
    cuda_runtime: Library = Library(problem="not looked for")
    tensorrt: Library = Library(problem="not looked for")
    sms: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Libraries:
        return cls(
            driver=Library(**values["driver"]),
            cuda_runtime=Library(**values["cuda_runtime"]),
            tensorrt=Library(**values["tensorrt"]),
            sms=tuple(values["sms"]),
        )


def probe_libraries(timeout_seconds: float = TIMEOUT_SECONDS) -> Libraries:
    """Load the libraries in another process and give what it found; what went wrong is in the problems."""
    command = [sys.executable, "-P", "-m", __name__]  # -P: whatever lies in the current folder is no module of ours
    try:
        done = subprocess.run(  # noqa: S603  # this module, no shell
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=timeout_seconds
        )
    except subprocess.TimeoutExpired:
        return _all_failed(f"looking at it took more than {timeout_seconds:.0f} s")
    except OSError as error:
        return _all_failed(f"it could not be looked at: {error.strerror}")
    if done.returncode != 0:
        return _all_failed(f"looking at it ended with status {done.returncode}")
    try:
        # A library may have had something to say before.
        return Libraries.from_json(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError, KeyError, TypeError):
        return _all_failed("what looks at it gave no answer")


def _all_failed(problem: str) -> Libraries:
    failed = Library(problem=problem)
    return Libraries(failed, failed, failed)


def look() -> Libraries:
    """Load each library into this process."""
    driver, sms = _driver()
    return Libraries(driver, _cuda_runtime(), _tensorrt(), sms)


def _driver() -> tuple[Library, tuple[int, ...]]:
    name = Path(ctypes.util.find_library("cuda") or DRIVER_NAME).name
    try:
        library = ctypes.CDLL(name)
        version, count = ctypes.c_int(), ctypes.c_int()
        library.cuDriverGetVersion(ctypes.byref(version))
        shown = _cuda_version(version.value)
        status = library.cuInit(0)
        if status not in (0, _NO_DEVICE):
            return Library(name, shown, f"it cannot be initialised (CUDA error {status})"), ()
        if status == _NO_DEVICE or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return Library(name, shown), ()
        return Library(name, shown), tuple(_compute_capability(library, device) for device in range(count.value))
    except (OSError, AttributeError) as error:
        return Library(problem=f"{name} cannot be loaded: {_one_line(error)}"), ()


def _compute_capability(driver: ctypes.CDLL, device: int) -> int:
    major, minor = ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(major), _COMPUTE_CAPABILITY_MAJOR, device)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _COMPUTE_CAPABILITY_MINOR, device)
    return major.value * 10 + minor.value


def _cuda_runtime() -> Library:
    found = ctypes.util.find_library("cudart")
    if found is None:
        return Library(problem="libcudart is not installed where the system looks for libraries")
    name, version = Path(found).name, ctypes.c_int()
    try:
        status = ctypes.CDLL(found).cudaRuntimeGetVersion(ctypes.byref(version))
    except (OSError, AttributeError) as error:
        return Library(name, problem=f"{name} cannot be loaded: {_one_line(error)}")
    return Library(name, _cuda_version(version.value) if status == 0 else "")


def _tensorrt() -> Library:
    """Name the library as the Python bindings will: by their major version."""
    bindings = bindings_version()
    name = f"libnvinfer.so.{bindings.partition('.')[0]}" if bindings else ctypes.util.find_library("nvinfer")
    if not name:
        return Library(problem="libnvinfer is not installed where the system looks for libraries")
    packaged = _packaged_library(Path(name).name)
    failure: OSError | None = None
    for candidate in (name, packaged):
        if candidate is None:
            continue
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            failure = failure or error
            continue
        return Library(Path(name).name, _tensorrt_version(library))
    return Library(Path(name).name, problem=f"{Path(name).name} cannot be loaded: {_one_line(failure)}")


def bindings_version() -> str:
    """Give the version of TensorRT's Python bindings, "" when they are not installed."""
    try:
        return importlib.metadata.version(BINDINGS_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _packaged_library(name: str) -> str | None:
    """Find the library where pip puts it, in a package beside the bindings."""
    spec = importlib.util.find_spec(PACKAGED_LIBRARIES)
    places = [Path(place) / name for place in (spec.submodule_search_locations or ())] if spec else []
    return next((str(place) for place in places if place.is_file()), None)


def _tensorrt_version(library: ctypes.CDLL) -> str:
    try:
        number = int(library.getInferLibVersion())
    except AttributeError:
        return ""
    version = f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    try:
        return f"{version}.{int(library.getInferLibBuildVersion())}"
    except AttributeError:
        return version


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number // 10 % 100}" if number > 0 else ""


def _one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    answer = json.dumps(asdict(look()))
    print(f"\n{answer}")
