"""What a configured model is for, found out from its source where the configuration leaves it open."""

from __future__ import annotations

from edgellm.config import ModelSettings, Settings
from edgellm.config.model_kind import ModelKind
from edgellm.engines.cache_directory import models_dir
from edgellm.engines.piper_voice import is_piper_voice
from edgellm.engines.tensorrt.speech_checkpoint import is_speech_checkpoint
from edgellm.engines.whisper_folder import is_whisper


def kind_of(model: ModelSettings, settings: Settings) -> ModelKind:
    """What the configuration says, else what the source is; ``auto`` is left for what only loading shows."""
    if model.kind == "auto" and is_whisper(model.source, models_dir(settings.cache_dir)):
        return "asr"
    if model.kind == "auto" and (is_piper_voice(model.source) or speaks_on_tensorrt(model, settings)):
        return "tts"
    return model.kind


def speaks_on_tensorrt(model: ModelSettings, settings: Settings) -> bool:
    """A speech model with an engine, as models that make text have one, which Whisper models and voices have not."""
    return is_speech_checkpoint(model.source, models_dir(settings.cache_dir))
