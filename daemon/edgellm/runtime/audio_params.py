"""AudioParams: how a request for speech is to sound, under the names of NVIDIA's Python API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from edgellm.errors import RequestError, UnsupportedParameterError

# Whole numbers where the least is one. A codec frame is 80 ms: the longest is what a runtime's default allows 16 times.
_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "talker_temperature": (0.0, 5.0),
    "talker_top_k": (0, 65_536),
    "talker_top_p": (0.0, 1.0),
    "repetition_penalty": (0.1, 10.0),
    "max_audio_length": (1, 65_536),
    "codec_chunk_frames": (1, 1_024),
    "talker_prefill_threshold": (1, 1_024),
}


@dataclass(frozen=True, slots=True)
class AudioParams:
    """``voice`` is one of ``list_voices()``; None takes the first. ``speed`` is ours: 1.0 is the voice's own.

    The others sample the talker of a TensorRT speech model, which voices of other kinds do not have: there a value
    that differs from its default is refused.
    """

    voice: str | None = None
    talker_temperature: float = 0.9
    talker_top_k: int = 50
    talker_top_p: float = 1.0
    repetition_penalty: float = 1.05
    max_audio_length: int = 4096
    codec_chunk_frames: int = 10
    talker_prefill_threshold: int = 4
    speed: float = 1.0

    def check(self) -> None:
        """Raise RequestError for a value that no talker can be sampled with."""
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            is_number = not isinstance(value, bool) and isinstance(
                value, int if isinstance(least, int) else (int, float)
            )
            if not is_number or not least <= value <= most:
                raise RequestError(f"{name} must be {least} to {most}.", param=name)

    def check_no_talker(self) -> None:
        """Raise UnsupportedParameterError for what only a model with a talker can do."""
        for each in fields(self):
            if each.name not in ("voice", "speed") and getattr(self, each.name) != each.default:
                raise UnsupportedParameterError(f"{each.name}: this voice has no talker to sample", param=each.name)
