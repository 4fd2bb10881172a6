"""What a configured model is for, found out from its source where the configuration leaves it open."""

from __future__ import annotations

from edgellm.config import ModelSettings, Settings
from edgellm.config.model_kind import ModelKind
from edgellm.engines.cache_directory import models_dir
from edgellm.engines.piper_voice import is_piper_voice
from edgellm.engines.tensorrt.speech_checkpoint import is_speech_checkpoint, is_transcription_checkpoint
from edgellm.engines.whisper_folder import is_whisper


def kind_of(model: ModelSettings, settings: Settings) -> ModelKind:
    """What the configuration says, else what the source is; ``auto`` is left for what only loading shows."""
    folder = models_dir(settings.cache_dir)
    if model.kind != "auto":
        return model.kind
    if is_whisper(model.source, folder) or is_transcription_checkpoint(model.source, folder):
        return "asr"
    if is_piper_voice(model.source) or is_speech_checkpoint(model.source, folder):
        return "tts"
    return "auto"


def has_sound_engine(model: ModelSettings, settings: Settings) -> bool:
    """A model of sound with an engine, as models that make text have one, which Whisper models and voices have not."""
    folder = models_dir(settings.cache_dir)
    return is_speech_checkpoint(model.source, folder) or is_transcription_checkpoint(model.source, folder)
