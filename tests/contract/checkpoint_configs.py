"""Configurations of checkpoints of every kind, as far as the choice of their components reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Files = dict[str, dict[str, Any]]

# What a family may leave out, and in which file it shows.
OPTIONAL_FILES: Files = {
    "speech_tokenizer/config.json": {"encoder_config": {}},
    "transformer/config.json": {},
    "vae/config.json": {},
    "model.safetensors.index.json": {
        "weight_map": {
            "model.vision_tower.a": "a",
            "model.vision_adapter.b": "a",
            "model.vision_projection.c": "a",
        }
    },
}
SECTIONS = ("text_config", "vision_config", "audio_config", "speaker_encoder_config")


def variants_of(model_type: str) -> Iterator[Files]:
    """A checkpoint with everything, with nothing, and without each part in turn."""
    full = {"model_type": model_type, **{section: {} for section in SECTIONS}}
    yield {"config.json": full, **OPTIONAL_FILES}
    yield {"config.json": {"model_type": model_type}}
    for section in SECTIONS:
        yield {"config.json": {name: value for name, value in full.items() if name != section}, **OPTIONAL_FILES}
    for absent in OPTIONAL_FILES:
        yield {"config.json": full, **{name: value for name, value in OPTIONAL_FILES.items() if name != absent}}
    yield {
        "config.json": full,
        **OPTIONAL_FILES,
        "model.safetensors.index.json": {"weight_map": {"model.vision_tower.a": "a"}},
        "speech_tokenizer/config.json": {},
    }
    yield {"config.json": {**full, "architectures": ["Qwen3VLVisionModel"]}, **OPTIONAL_FILES}


def write_files(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return folder
