"""Checkpoints that speak, or write down what they hear: built as others are, and served as models of sound."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from edgellm.engines.checkpoint_names import CONFIG_FILE
from edgellm.engines.hub.hub_id import parse_hub_id
from edgellm.engines.hub.hub_model import find_model
from edgellm.engines.json_file import read_object
from edgellm.errors import EdgeLLMError

SPEECH_MODEL_TYPE: Final = "qwen3_tts"
TRANSCRIPTION_MODEL_TYPE: Final = "qwen3_asr"
MAX_CONFIG_BYTES: Final = 1 << 20


def is_speech_checkpoint(model: str, models_dir: Path) -> bool:
    """Whether the argument is a folder with one that speaks, or the id of one that was fetched to ``models_dir``."""
    return _model_type(model, models_dir) == SPEECH_MODEL_TYPE


def is_transcription_checkpoint(model: str, models_dir: Path) -> bool:
    """The same of one that writes down what it hears."""
    return _model_type(model, models_dir) == TRANSCRIPTION_MODEL_TYPE


def _model_type(model: str, models_dir: Path) -> object:
    """None where there is no checkpoint, or none that says."""
    try:
        folder = Path(model).expanduser()
        if not folder.is_dir():
            hub_id = parse_hub_id(model)
            found = None if hub_id is None else find_model(hub_id, models_dir)
            if found is None:
                return None
            folder = found.path
        return read_object(folder / CONFIG_FILE, MAX_CONFIG_BYTES).get("model_type")
    except (OSError, ValueError, EdgeLLMError):
        return None
