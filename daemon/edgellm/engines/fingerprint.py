"""PlatformFingerprint: what a bundle's files owe to the machine and the software that built them.

Keyed values are those a loader matches on: another value makes a bundle useless, so it is a miss. Recorded values are
kept in the manifest for people who look for a cause; they never decide a hit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgellm import __version__
from edgellm.engines.build_profile import RuntimeKind

# Part of every native key. Raise it whenever the files of a bundle would come out differently for the same checkpoint:
# tensor layout, quantiser (gguf is pinned), metadata, tokenizer, template or config.
LOWERING_VERSION = 1

FingerprintValue = str | int


@dataclass(frozen=True, slots=True)
class PlatformFingerprint:
    """``keyed`` and ``recorded`` hold values by name; make one with ``native`` or ``tensorrt``."""

    runtime: RuntimeKind
    keyed: Mapping[str, FingerprintValue]
    recorded: Mapping[str, FingerprintValue] = field(default_factory=dict)

    @classmethod
    def native(cls, lowering_version: int = LOWERING_VERSION) -> PlatformFingerprint:
        """Portable between machines: what depends on an instruction set is derived from the bundle, not in it."""
        return cls("native", {"lowering_version": lowering_version}, {"edgellm_version": __version__})

    @classmethod
    def tensorrt(
        cls,
        *,
        wheel_version: str,
        payload_id: str,
        tensorrt_version: str,
        cuda_runtime: str,
        sm: int,
        l4t: str | None,
        recorded: Mapping[str, FingerprintValue] | None = None,
    ) -> PlatformFingerprint:
        """What NVIDIA's loader and TensorRT match on.

        ``payload_id`` is the variant of the native library (``jetson-orin-jp72-cu13-sm87``), ``tensorrt_version`` the
        full one (``10.16.0.72``), ``cuda_runtime`` the library's name (``libcudart.so.13``), ``sm`` the compute
        capability times ten, ``l4t`` ``R39.2`` or None off Jetson. ``recorded`` takes patch levels: L4T's third
        number, CUDA's, the driver.
        """
        keyed: dict[str, FingerprintValue] = {
            "wheel_version": wheel_version,
            "payload_id": payload_id,
            "tensorrt_version": tensorrt_version,
            "cuda_runtime": cuda_runtime,
            "sm": sm,
            "l4t": l4t or "none",
        }
        return cls("tensorrt", keyed, {"edgellm_version": __version__, **(recorded or {})})
