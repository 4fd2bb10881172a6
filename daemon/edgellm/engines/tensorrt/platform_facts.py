"""PlatformFacts: everything about this machine that TensorRT Edge-LLM depends on, read once, judged elsewhere."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edgellm.engines.tensorrt.device_file import DEVICE_FILE, DeclaredDevice, read_device_file
from edgellm.engines.tensorrt.library_probe import Libraries, bindings_version, probe_libraries
from edgellm.engines.tensorrt.payloads import Host, Payload, installed_package, read_payloads
from edgellm.engines.tensorrt.release import PlatformRelease, read_release
from edgellm.errors import RuntimeUnavailableError

WHEEL = "tensorrt-edgellm"
CUDA_BINDINGS = "cuda-python"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_CACHE_TAG = re.compile(r"cpython-(\d{2,3})")


@dataclass(frozen=True, slots=True)
class PlatformFacts:
    """Versions are "" where something is not installed. ``payloads`` is None for a package built from source.

    ``payloads_problem`` says why the list of payloads cannot be read.
    """

    python_abi: str
    cpu_arch: str
    release: PlatformRelease
    libraries: Libraries
    wheel_version: str = ""
    bindings_version: str = ""
    cuda_bindings_version: str = ""
    payloads: tuple[Payload, ...] | None = None
    payloads_problem: str = ""
    device: DeclaredDevice | None = field(default=None)

    @property
    def sm(self) -> int:
        """Give the one kind of GPU that is visible; 0 for none or several kinds."""
        kinds = set(self.libraries.sms)
        return kinds.pop() if len(kinds) == 1 else 0

    @property
    def host(self) -> Host:
        """What payloads are matched against."""
        return Host(
            python_abi=self.python_abi,
            cpu_arch=self.cpu_arch,
            probe_source=self.release.source,
            probe_value=self.release.value,
            cuda_runtime=self.libraries.cuda_runtime.name,
            tensorrt_runtime=self.libraries.tensorrt.name,
            sm=self.sm,
        )


def read_platform_facts(
    root: Path = Path("/"),
    *,
    device_file: Path = DEVICE_FILE,
    probe: Callable[[], Libraries] = probe_libraries,
) -> PlatformFacts:
    """Read the facts of this machine; ``root`` holds its release markers. Raises nothing."""
    cpu_arch = cpu_architecture()
    package, payloads, problem = installed_package(), None, ""
    if package is not None:
        try:
            payloads = read_payloads(package)
        except RuntimeUnavailableError as error:
            problem = str(error)
    return PlatformFacts(
        python_abi=python_abi(),
        cpu_arch=cpu_arch,
        release=read_release(root, cpu_arch),
        libraries=probe(),
        wheel_version=_version_of(WHEEL) or ("unknown" if package else ""),
        bindings_version=bindings_version(),
        cuda_bindings_version=_version_of(CUDA_BINDINGS),
        payloads=payloads,
        payloads_problem=problem,
        device=read_device_file(device_file),
    )


def python_abi() -> str:
    """Give this Python as wheels name it, ``cp312``; "" for one that NVIDIA's wheels do not run on."""
    tag = _CACHE_TAG.fullmatch(getattr(sys.implementation, "cache_tag", "") or "")
    return f"cp{tag[1]}" if tag else ""


def cpu_architecture() -> str:
    machine = platform.machine().lower()
    return _MACHINES.get(machine, machine)


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
