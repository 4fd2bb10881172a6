"""Picks the runtime module, TensorRT's or ours, with the reason. The only file that imports NVIDIA's packages.

``auto`` takes TensorRT where its package finds a supported GPU and a payload for it. A machine that is declared a
Jetson (``/run/edgellm/device.json``, written by a host unit) never falls back to the CPU: what is wrong is said.
Elsewhere ``auto`` runs a GGUF file on the native runtime, whatever the machine has.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from edgellm.engines.source import ModelSource, SourceKind
from edgellm.engines.tensorrt.device_file import DEVICE_FILE, read_device_file
from edgellm.errors import RuntimeUnavailableError
from edgellm.runtime.native_module import guidance_library, load_native_module

if TYPE_CHECKING:
    from edgellm.engines.tensorrt.platform_facts import PlatformFacts

RuntimeKind = Literal["tensorrt", "native"]
RuntimeChoice = Literal["auto", "tensorrt", "native"]

PLUGIN_VARIABLE = "EDGELLM_PLUGIN_PATH"
SOURCE_BUILD_VARIABLE = "EDGELLM_PYBIND_DIR"
DEVICE_FILE_VARIABLE = "EDGELLM_DEVICE_FILE"

# Where NVIDIA keeps things: as announced for later releases, then as in 0.11.
_BUILDER_MODULES = ("tensorrt_edgellm.builder", "experimental.builder")
_FACADE_MODULE = "tensorrt_edgellm.runtime"
_EXTENSION_MODULES = ("tensorrt_edgellm._edgellm_runtime", "_edgellm_runtime")
_EXTENSION_NAME = "_edgellm_runtime"
_PLUGIN_NAME = "libNvInfer_edgellm_plugin.so"
# NVIDIA's errors, by name since they come from a package that may be absent. The first says that the package was
# built from source; the next that this machine has no GPU, or none that a payload exists for.
_NO_MANIFEST = "NativeManifestNotFoundError"
_NO_SUPPORTED_GPU = frozenset({"NativeDetectionError", "NativeSelectionError"})
_DAMAGED_INSTALLATION = frozenset({"TensorRTDependencyError", "NativeManifestError"})


@dataclass(frozen=True, slots=True)
class SelectedRuntime:
    """``reason`` is for people. ``guidance_library`` belongs into the native runtime's options, "" for none.

    ``builder`` is the module that builds TensorRT engines, run as ``python -m``; "" on the native runtime.
    """

    kind: RuntimeKind
    module: ModuleType
    reason: str
    guidance_library: str = ""
    builder: str = ""


class _NotInstalledError(Exception):
    """NVIDIA's runtime is not on this machine at all."""


class _NoSupportedGpuError(Exception):
    """NVIDIA's package is here, and finds nothing to run on."""


def select_runtime(
    choice: RuntimeChoice = "auto",
    *,
    device_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> SelectedRuntime:
    """Load the chosen runtime module. Raises RuntimeUnavailableError with the reason and the remedy.

    ``device_file`` declares a Jetson where it exists; None: EDGELLM_DEVICE_FILE, else that of the host unit.
    """
    environment = os.environ if environment is None else environment
    if choice == "native":
        return _native("runtime is set to native", environment)
    declared = read_device_file(device_file or _device_file(environment))
    if choice == "tensorrt" or declared is not None:
        cause = (
            f"{declared.path} declares {declared}"
            if declared and choice != "tensorrt"
            else "runtime is set to tensorrt"
        )
        try:
            return _tensorrt(cause, environment)
        except (_NotInstalledError, _NoSupportedGpuError) as error:
            raise RuntimeUnavailableError(
                f"{cause}, and TensorRT Edge-LLM cannot run here: {error} — repair it (edgellm doctor lists what is "
                "missing), or set runtime to native to run on the CPU"
            ) from error
    try:
        return _tensorrt("a supported GPU was found", environment)
    except (_NotInstalledError, _NoSupportedGpuError) as error:
        return _native(f"no TensorRT: {error}", environment)


def runtime_for(
    choice: RuntimeChoice, selected: SelectedRuntime, source: ModelSource, *, device_file: Path | None = None
) -> SelectedRuntime:
    """What runs ``source``: ``selected``, unless ``auto`` took TensorRT for a GGUF file, which only ours can read.

    On a declared Jetson it stays TensorRT, which refuses the file: nothing runs on the CPU there unasked.
    """
    if choice != "auto" or selected.kind != "tensorrt" or source.kind is not SourceKind.GGUF:
        return selected
    if read_device_file(device_file or _device_file(os.environ)) is not None:
        return selected
    return _native("TensorRT Edge-LLM reads no GGUF files", os.environ)


def platform_facts(device_file: Path | None = None) -> PlatformFacts:
    """Give what this machine has of all that TensorRT Edge-LLM needs."""
    from edgellm.engines.tensorrt.platform_facts import read_platform_facts  # not at every start

    return read_platform_facts(device_file=device_file or _device_file(os.environ))


def _device_file(environment: Mapping[str, str]) -> Path:
    return Path(environment.get(DEVICE_FILE_VARIABLE) or DEVICE_FILE)


def _native(reason: str, environment: Mapping[str, str]) -> SelectedRuntime:
    return SelectedRuntime("native", load_native_module(environment), reason, guidance_library=guidance_library())


def _tensorrt(reason: str, environment: Mapping[str, str]) -> SelectedRuntime:
    module = _load_packaged() or _load_source_build(environment)
    return SelectedRuntime("tensorrt", module, reason, builder=builder_module())


def builder_module() -> str:
    """Give the module that builds TensorRT engines, run as ``python -m``; "" where there is none."""
    return next((name for name in _BUILDER_MODULES if _is_there(name)), "")


def _load_packaged() -> ModuleType | None:
    """Load the payload of NVIDIA's wheel; None for an installation without one, which was built from source."""
    try:
        facade = importlib.import_module(_FACADE_MODULE)
    except ImportError:
        return None
    if not hasattr(facade, "load"):
        return None
    try:
        module: ModuleType = facade.load()
    except ImportError:
        return None
    except Exception as error:  # NVIDIA's classes cannot be named without importing its package
        names = {kind.__name__ for kind in type(error).__mro__}
        if _NO_MANIFEST in names:
            return None
        if names & _NO_SUPPORTED_GPU and not names & _DAMAGED_INSTALLATION:
            raise _NoSupportedGpuError(_one_line(error)) from error
        raise RuntimeUnavailableError(
            f"TensorRT Edge-LLM is installed and cannot be loaded: {_one_line(error)}. "
            "Repair it, or set runtime to native to run on the CPU"
        ) from error
    return module


def _load_source_build(environment: Mapping[str, str]) -> ModuleType:
    folder = environment.get(SOURCE_BUILD_VARIABLE, "")
    if folder:
        return _load_extension(Path(folder))
    for name in _EXTENSION_MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise _NotInstalledError("the package tensorrt-edgellm is not installed")


def _load_extension(folder: Path) -> ModuleType:
    """Load the extension out of a build folder of NVIDIA's sources, whose plugin must be known to it first."""
    files = sorted(folder.glob(f"{_EXTENSION_NAME}*.so"))
    if not files:
        raise RuntimeUnavailableError(f"{SOURCE_BUILD_VARIABLE}: {folder} holds no {_EXTENSION_NAME}*.so")
    if not os.environ.get(PLUGIN_VARIABLE):
        plugin = next((path for path in (folder / _PLUGIN_NAME, folder.parent / _PLUGIN_NAME) if path.is_file()), None)
        if plugin is None:
            raise RuntimeUnavailableError(f"set {PLUGIN_VARIABLE} to the {_PLUGIN_NAME} of the build in {folder}")
        # The extension reads the variable itself, out of the process's environment.
        os.environ[PLUGIN_VARIABLE] = str(plugin)
    spec = importlib.util.spec_from_file_location(_EXTENSION_NAME, files[0])
    if spec is None or spec.loader is None:
        raise RuntimeUnavailableError(f"{files[0]} is not a module that this Python can load")
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise RuntimeUnavailableError(f"{files[0]} cannot be loaded: {_one_line(error)}") from error
    return module


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
