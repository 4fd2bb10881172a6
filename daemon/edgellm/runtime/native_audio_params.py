"""AudioParams as the contract's OmniAudioParams."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.contract import RuntimeModule

# Of a model that names no speakers.
DEFAULT_VOICE: Final = "default"

_SAME_NAMES: Final = (
    *("talker_temperature", "talker_top_k", "talker_top_p", "repetition_penalty"),
    *("max_audio_length", "codec_chunk_frames", "talker_prefill_threshold"),
)


def native_audio_params(module: RuntimeModule, params: AudioParams, voice: str, speakers: Collection[str]) -> Any:
    """Every field is set. A voice that is no speaker of the model is the one that it has without a name."""
    native = module.OmniAudioParams()
    native.speaker_name = voice if voice in speakers else ""
    for name in _SAME_NAMES:
        setattr(native, name, getattr(params, name))
    return native
