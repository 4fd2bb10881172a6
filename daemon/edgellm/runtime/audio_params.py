"""AudioParams: how a request for speech is to sound, under the names of NVIDIA's Python API."""

from __future__ import annotations

from dataclasses import dataclass, fields

from edgellm.errors import UnsupportedParameterError


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

    def check_no_talker(self) -> None:
        """Raise UnsupportedParameterError for what only a model with a talker can do."""
        for each in fields(self):
            if each.name not in ("voice", "speed") and getattr(self, each.name) != each.default:
                raise UnsupportedParameterError(f"{each.name}: this voice has no talker to sample", param=each.name)
