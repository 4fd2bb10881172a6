"""EngineKey: every input that decides a bundle's files, in clear, and the digest that names the bundle.

Inputs are flat and named: ``runtime``, ``checkpoint``, ``draft``, ``profile.NAME`` and ``platform.NAME``. None of them
is a path. Two keys are equal when all inputs are; where they differ, ``differences`` says in what.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgellm.engines.build_profile import BuildProfile, RuntimeKind
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.errors import ConfigError

KEY_VERSION = 2
"""Raised when the way keys are made changes; bundles of the first layout had no number."""
SHORT_DIGITS = 16

KeyValue = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Difference:
    """``ours`` and ``theirs`` are the values of one input; None also where a key lacks the input."""

    name: str
    ours: KeyValue
    theirs: KeyValue

    def __str__(self) -> str:
        return f"{self.name}: {_shown(self.ours)} here, {_shown(self.theirs)} there"


@dataclass(frozen=True, slots=True)
class EngineKey:
    inputs: Mapping[str, KeyValue]

    @classmethod
    def of(
        cls, fingerprint: PlatformFingerprint, profile: BuildProfile, checkpoint_digest: str, draft_digest: str | None
    ) -> EngineKey:
        """``profile`` must be resolved: where ``auto`` stands for something, that something is keyed."""
        profile_values = profile.keyed(fingerprint.runtime)
        return cls(
            {
                "key_version": KEY_VERSION,
                "runtime": fingerprint.runtime,
                "checkpoint": checkpoint_digest,
                "draft": draft_digest,
                **{f"profile.{name}": value for name, value in profile_values.items()},
                **{f"platform.{name}": value for name, value in fingerprint.keyed.items()},
            }
        )

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 over the inputs."""
        text = json.dumps(dict(self.inputs), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def short(self) -> str:
        """The part of the digest that stands in a bundle's folder name."""
        return self.digest[:SHORT_DIGITS]

    @property
    def runtime(self) -> RuntimeKind:
        return "tensorrt" if self.inputs.get("runtime") == "tensorrt" else "native"

    @property
    def checkpoint_digest(self) -> str:
        return str(self.inputs["checkpoint"])

    def differences(self, other: EngineKey) -> tuple[Difference, ...]:
        """What differs, in the order of our inputs; empty for equal keys."""
        names = [*self.inputs, *(name for name in other.inputs if name not in self.inputs)]
        return tuple(
            Difference(name, self.inputs.get(name), other.inputs.get(name))
            for name in names
            if self.inputs.get(name) != other.inputs.get(name)
        )

    def as_of(self, platform: Mapping[str, str]) -> EngineKey:
        """This key on a platform with other values, by the names of the fingerprint. Raises ConfigError."""
        inputs = dict(self.inputs)
        for name, text in platform.items():
            current = inputs.get(f"platform.{name}")
            if current is None:
                known = [key.removeprefix("platform.") for key in inputs if key.startswith("platform.")]
                raise ConfigError(f"{name!r} is no platform value of this engine; it has {', '.join(known)}")
            if isinstance(current, int):
                if not text.isdecimal():
                    raise ConfigError(f"{name} must be a whole number, not {text!r}")
                inputs[f"platform.{name}"] = int(text)
            else:
                inputs[f"platform.{name}"] = text
        return replace(self, inputs=inputs)


def _shown(value: KeyValue) -> str:
    return "none" if value is None else str(value)
