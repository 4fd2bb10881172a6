"""Checkpoints that speak and make no text: they are built as other checkpoints are, and loaded by another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from edgellm.engines.checkpoint_names import CONFIG_FILE
from edgellm.engines.hub.hub_id import parse_hub_id
from edgellm.engines.hub.hub_model import find_model
from edgellm.engines.json_file import read_object
from edgellm.errors import EdgeLLMError

SPEECH_MODEL_TYPE: Final = "qwen3_tts"
MAX_CONFIG_BYTES: Final = 1 << 20


def is_speech_checkpoint(model: str, models_dir: Path) -> bool:
    """Whether the argument is a folder with such a checkpoint, or the id of one that was fetched to ``models_dir``."""
    try:
        folder = Path(model).expanduser()
        if not folder.is_dir():
            hub_id = parse_hub_id(model)
            found = None if hub_id is None else find_model(hub_id, models_dir)
            if found is None:
                return False
            folder = found.path
        return read_object(folder / CONFIG_FILE, MAX_CONFIG_BYTES).get("model_type") == SPEECH_MODEL_TYPE
    except (OSError, ValueError, EdgeLLMError):
        return False
