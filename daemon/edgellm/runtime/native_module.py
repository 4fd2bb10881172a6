"""Loads edgellm._native with its tensor library, or says in one sentence why this machine cannot.

The module is linked against ggml without a search path. Its shared libraries are loaded here by absolute path
first: from the libggml package, or from a folder of the site's own (``EDGELLM_GGML_DIR``). They stay out of the
global symbol scope, so that another copy of ggml in the process keeps to itself.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from edgellm.errors import RuntimeUnavailableError

GGML_FOLDER_VARIABLE = "EDGELLM_GGML_DIR"
CPU_INFO_FILE = Path("/proc/cpuinfo")

_MODULE_NAME = "edgellm._native"
# The packaged ggml is compiled for these; it would end in an illegal instruction, not in a message.
_CPU_FLAGS_OF_PACKAGED_GGML = {"x86_64": ("avx2", "fma", "f16c", "bmi2")}
# In the order of their dependencies. A ggml with loadable backends has no library of the second name.
_REQUIRED_LIBRARIES = ("libggml-base.so", "libggml.so")
_LIBRARIES = ("libggml-base.so", "libggml-cpu.so", "libggml.so")


def load_native_module(environment: Mapping[str, str], *, cpu_info_file: Path = CPU_INFO_FILE) -> ModuleType:
    """Give edgellm._native, ready for use. Raises RuntimeUnavailableError with the cause and the remedy."""
    loaded = sys.modules.get(_MODULE_NAME)
    if loaded is not None:
        return loaded
    own_folder = environment.get(GGML_FOLDER_VARIABLE, "")
    if not own_folder:
        check_cpu(cpu_info_file)
    folder = _library_folder(Path(own_folder)) if own_folder else _packaged_folder()
    version = _preload(folder)
    return _import_module(folder, version)


def check_cpu(cpu_info_file: Path = CPU_INFO_FILE, *, machine: str = "") -> None:
    """Raise RuntimeUnavailableError when the CPU lacks what the packaged tensor library is compiled for."""
    needed = _CPU_FLAGS_OF_PACKAGED_GGML.get(machine or platform.machine(), ())
    flags = _cpu_flags(cpu_info_file) if needed else None
    if flags is None:
        return
    missing = [name.upper() for name in needed if name not in flags]
    if missing:
        raise RuntimeUnavailableError(
            f"this CPU has no {', '.join(missing)}, which the native runtime needs (x86-64 from about 2013 on); "
            f"use another machine, or build ggml for this one and name its folder in {GGML_FOLDER_VARIABLE}"
        )


def guidance_library() -> str:
    """Give the path of llguidance's shared library for RuntimeOptions.guidance_library; "" when it is missing."""
    spec = importlib.util.find_spec("llguidance")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for library in sorted(Path(folder).glob("_lib*.so")):
            return str(library)
    return ""


def _cpu_flags(cpu_info_file: Path) -> frozenset[str] | None:
    """Flags of the first CPU; None when the system does not say."""
    try:
        text = cpu_info_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return None


def _packaged_folder() -> Path:
    spec = importlib.util.find_spec("libggml")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeUnavailableError(
            "the package libggml-python is not installed — install edgellm again with its dependencies"
        )
    return _library_folder(Path(next(iter(spec.submodule_search_locations))))


def _library_folder(folder: Path) -> Path:
    for candidate in (folder, folder / "lib64", folder / "lib"):
        if all((candidate / name).is_file() for name in _REQUIRED_LIBRARIES):
            return candidate.resolve()
    raise RuntimeUnavailableError(f"{folder} holds no {' and '.join(_REQUIRED_LIBRARIES)}; is it a folder of ggml?")


def _preload(folder: Path) -> str:
    """Load the libraries and give the version that they say they are."""
    base: ctypes.CDLL | None = None
    for name in _LIBRARIES:
        library = folder / name
        if not library.is_file():
            continue
        try:
            handle = ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise RuntimeUnavailableError(f"{library} cannot be loaded: {error}") from error
        base = base or handle
    try:
        version = base.ggml_version if base is not None else None
    except AttributeError:
        version = None
    if version is None:
        raise RuntimeUnavailableError(f"{folder / _LIBRARIES[0]} does not tell its version; it is too old for edgellm")
    version.restype = ctypes.c_char_p
    return str(version().decode("ascii", "replace"))


def _import_module(folder: Path, ggml_version: str) -> ModuleType:
    if importlib.util.find_spec(_MODULE_NAME) is None:
        raise RuntimeUnavailableError(
            "edgellm was installed without its native module — install it again with a C++20 compiler at hand"
        )
    try:
        module = importlib.import_module(_MODULE_NAME)
    except ImportError as error:
        raise RuntimeUnavailableError(
            f"the native module does not fit ggml {ggml_version} in {folder} ({error}) — build edgellm again"
        ) from error
    if module.ggml_version not in ("", ggml_version):
        sys.modules.pop(_MODULE_NAME, None)
        raise RuntimeUnavailableError(
            f"the native module was built for ggml {module.ggml_version}, but {folder} holds {ggml_version}; "
            "build edgellm again or use the matching ggml"
        )
    return module
