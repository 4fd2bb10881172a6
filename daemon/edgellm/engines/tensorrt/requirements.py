"""Requirements: what TensorRT Edge-LLM needs of a machine, each as it is here, and what to do where it is not."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.engines.tensorrt.payloads import Payload, select_payload
from edgellm.engines.tensorrt.platform_facts import WHEEL, PlatformFacts
from edgellm.errors import RuntimeUnavailableError

SUPPORTED_RELEASES = "JetPack 7.2 (L4T R39.2) on Orin, JetPack 7.0 to 7.2 (L4T R38.2, R38.4, R39.2) on Thor"
WHEEL_PYTHONS = ("cp310", "cp311", "cp312")
WHEEL_ARCHITECTURES = ("x86_64", "aarch64")


@dataclass(frozen=True, slots=True)
class Requirement:
    """``name`` is stable, for programs; ``found`` says what is here; ``remedy`` is "" where all is right."""

    name: str
    met: bool
    found: str
    remedy: str = ""


def tensorrt_requirements(facts: PlatformFacts) -> tuple[Requirement, ...]:
    """Give every requirement in the order in which they build on each other. TensorRT can run when all are met."""
    return (
        _python(facts),
        _platform(facts),
        _driver(facts),
        _gpu(facts),
        _cuda_runtime(facts),
        _tensorrt(facts),
        _bindings(facts),
        _cuda_bindings(facts),
        _wheel(facts),
        _payload(facts),
    )


def unmet(facts: PlatformFacts) -> tuple[Requirement, ...]:
    return tuple(requirement for requirement in tensorrt_requirements(facts) if not requirement.met)


def matching_payload(facts: PlatformFacts) -> Payload:
    """Give the payload of this machine. Raises RuntimeUnavailableError with the reason."""
    if facts.payloads is None:
        raise RuntimeUnavailableError(facts.payloads_problem or f"{WHEEL} is not installed from its wheel")
    return select_payload(facts.host, facts.payloads)


def _python(facts: PlatformFacts) -> Requirement:
    here = f"{facts.python_abi or 'a Python without an ABI tag'} on {facts.cpu_arch}"
    right = facts.python_abi in WHEEL_PYTHONS and facts.cpu_arch in WHEEL_ARCHITECTURES
    remedy = f"NVIDIA publishes {WHEEL} for CPython 3.10 to 3.12 on x86_64 and aarch64: run edgellm with such a Python"
    return Requirement("python", right, here, "" if right else remedy)


def _platform(facts: PlatformFacts) -> Requirement:
    release, declared = facts.release, facts.device.l4t if facts.device else None
    if not release.source:
        return Requirement(
            "platform",
            False,
            release.problem,
            f"use {SUPPORTED_RELEASES}; in a container mount the host's /etc/nv_tegra_release read-only",
        )
    here = release.l4t_full or release.value
    if declared and release.l4t and declared != release.l4t:
        return Requirement(
            "platform",
            False,
            f"{release.source} {here}, and the device file says {declared}",
            "the container sees another release than its host: mount the host's /etc/nv_tegra_release",
        )
    return Requirement("platform", True, f"{release.source} {here}")


def _driver(facts: PlatformFacts) -> Requirement:
    driver = facts.libraries.driver
    if driver.problem:
        return Requirement(
            "driver",
            False,
            driver.problem,
            "install NVIDIA's GPU driver (on a Jetson it is part of JetPack); in a container pass the GPU through, "
            "with the NVIDIA container toolkit as --device nvidia.com/gpu=all",
        )
    return Requirement("driver", True, f"{driver.name}, for CUDA up to {driver.version or 'an unknown version'}")


def _gpu(facts: PlatformFacts) -> Requirement:
    kinds = sorted(set(facts.libraries.sms))
    declared = facts.device.sm if facts.device else None
    if not kinds:
        remedy = "let this process see the GPU: its group (video, render), its device nodes, CUDA_VISIBLE_DEVICES"
        return Requirement("gpu", False, "the driver shows no GPU", remedy)
    here = ", ".join(f"SM {sm}" for sm in kinds)
    if len(kinds) > 1:
        return Requirement("gpu", False, here, "set CUDA_VISIBLE_DEVICES to GPUs of one kind")
    if declared and declared != kinds[0]:
        return Requirement(
            "gpu",
            False,
            f"{here}, and the device file says SM {declared}",
            "the device file is not this board's: run its host unit again",
        )
    return Requirement("gpu", True, here)


def _cuda_runtime(facts: PlatformFacts) -> Requirement:
    runtime = facts.libraries.cuda_runtime
    if runtime.problem:
        return Requirement(
            "cuda-runtime", False, runtime.problem, "install CUDA 13 (on a Jetson: apt install nvidia-jetpack)"
        )
    return Requirement("cuda-runtime", True, f"{runtime.name}{_in_brackets(runtime.version)}")


def _tensorrt(facts: PlatformFacts) -> Requirement:
    library = facts.libraries.tensorrt
    if library.problem:
        return Requirement(
            "libnvinfer", False, library.problem, "install TensorRT 10 (on a Jetson: apt install nvidia-jetpack)"
        )
    return Requirement("libnvinfer", True, f"{library.name}{_in_brackets(library.version)}")


def _bindings(facts: PlatformFacts) -> Requirement:
    version, library = facts.bindings_version, facts.libraries.tensorrt.version
    if not version:
        return Requirement(
            "tensorrt-bindings",
            False,
            "the Python package tensorrt is not installed",
            "install it with TensorRT (on a Jetson: apt install python3-libnvinfer, and a virtual environment with "
            "--system-site-packages)",
        )
    if library and version.split(".")[:3] != library.split(".")[:3]:
        return Requirement(
            "tensorrt-bindings",
            False,
            f"{version}, and libnvinfer is {library}",
            "bindings and library must be of one version: remove the one that is not the platform's",
        )
    return Requirement("tensorrt-bindings", True, version)


def _cuda_bindings(facts: PlatformFacts) -> Requirement:
    version = facts.cuda_bindings_version
    if not version:
        remedy = "pip install 'cuda-python>=12.6,<14', which the wheel of NVIDIA's runtime asks for"
        return Requirement("cuda-bindings", False, "the Python package cuda-python is not installed", remedy)
    return Requirement("cuda-bindings", True, version)


def _wheel(facts: PlatformFacts) -> Requirement:
    if not facts.wheel_version:
        return Requirement("wheel", False, f"the package {WHEEL} is not installed", f"pip install {WHEEL}")
    return Requirement("wheel", True, f"{WHEEL} {facts.wheel_version}")


def _payload(facts: PlatformFacts) -> Requirement:
    if facts.wheel_version and facts.payloads is None and not facts.payloads_problem:
        return Requirement("payload", True, f"{WHEEL} was built from source for this machine")
    try:
        return Requirement("payload", True, matching_payload(facts).variant_id)
    except RuntimeUnavailableError as error:
        remedy = f"{WHEEL} has payloads for {SUPPORTED_RELEASES}; what is named before is what differs"
        if not facts.wheel_version:
            remedy = f"pip install {WHEEL}"
        return Requirement("payload", False, str(error), remedy)


def _in_brackets(version: str) -> str:
    return f" ({version})" if version else ""
