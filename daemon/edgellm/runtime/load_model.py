"""load_model: the class that fits a model: TTS for what only speaks, else by the checkpoint's own ``model_type``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.checkpoint_names import CONFIG_FILE
from edgellm.engines.json_file import read_object
from edgellm.engines.piper_voice import is_piper_voice
from edgellm.engines.source import ModelSource, SourceKind, resolve
from edgellm.engines.tensorrt.speech_checkpoint import MAX_CONFIG_BYTES, SPEECH_MODEL_TYPE
from edgellm.errors import ConfigError
from edgellm.runtime.llm import LLM
from edgellm.runtime.llm_options import DEFAULT_READ_ONLY_ENGINE_DIRS, path_text
from edgellm.runtime.tts import TTS


def load_model(model: str | os.PathLike[str], **options: Any) -> LLM | TTS:
    """Give LLM or TTS over ``model``; ``options`` are those of the class. The id comes from ``model`` as given."""
    model = path_text(model)
    if not isinstance(model, str) or not model.strip():
        raise ConfigError("model must name a checkpoint: a catalogue name, a GGUF file or a checkpoint folder")
    if is_piper_voice(model):
        return TTS(model, **options)
    cache_dir = options.get("cache_dir") or default_cache_dir(os.environ)
    on_progress = {"on_progress": options["on_progress"]} if "on_progress" in options else {}
    roots = [Path(root).expanduser() for root in options.get("read_only_engine_dirs", DEFAULT_READ_ONLY_ENGINE_DIRS)]
    source = resolve(model, models_dir(Path(cache_dir).expanduser()), roots=roots, **on_progress)
    if _model_type(source) == SPEECH_MODEL_TYPE:
        return TTS(model, **options)
    return LLM(model, **options)


def _model_type(source: ModelSource) -> str | None:
    """None for a GGUF file, all of whose families are text models, and where a bundle came without its checkpoint."""
    if source.kind is not SourceKind.SAFETENSORS or (source.digest is not None and not source.path.exists()):
        return None
    model_type = read_object(source.path / CONFIG_FILE, MAX_CONFIG_BYTES).get("model_type")
    return model_type if isinstance(model_type, str) else None
