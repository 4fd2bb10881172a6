"""The TensorRT half of the platform fingerprint, read from this machine."""

from __future__ import annotations

from edgellm.engines.fingerprint import FingerprintValue, PlatformFingerprint
from edgellm.engines.tensorrt.platform_facts import PlatformFacts
from edgellm.engines.tensorrt.requirements import matching_payload
from edgellm.errors import RuntimeUnavailableError

SOURCE_BUILD = "source-build"


def tensorrt_fingerprint(facts: PlatformFacts) -> PlatformFingerprint:
    """Give what engines built here owe to this machine. Raises RuntimeUnavailableError for what cannot be told."""
    libraries = facts.libraries
    # What pip and apt install beside the bindings is one version; the bindings know its last number too.
    tensorrt_version = facts.bindings_version or libraries.tensorrt.version
    values = {
        "the version of tensorrt-edgellm": facts.wheel_version,
        "the version of TensorRT": tensorrt_version,
        "CUDA's runtime library": libraries.cuda_runtime.name,
        "the GPU's compute capability": facts.sm,
    }
    for name, value in values.items():
        if not value:
            raise RuntimeUnavailableError(f"{name} is not known here, so no engine can be named — see edgellm doctor")
    built_from_source = facts.payloads is None and not facts.payloads_problem
    recorded: dict[str, FingerprintValue] = {
        "l4t_full": facts.release.l4t_full,
        "cuda_runtime_version": libraries.cuda_runtime.version,
        "tensorrt_library_version": libraries.tensorrt.version,
        "driver_cuda_version": libraries.driver.version,
        "module": facts.device.module if facts.device else "",
        "python_abi": facts.python_abi,
    }
    return PlatformFingerprint.tensorrt(
        wheel_version=facts.wheel_version,
        payload_id=SOURCE_BUILD if built_from_source else matching_payload(facts).variant_id,
        tensorrt_version=tensorrt_version,
        cuda_runtime=libraries.cuda_runtime.name,
        sm=facts.sm,
        l4t=facts.release.l4t,
        recorded={name: value for name, value in recorded.items() if value},
    )
