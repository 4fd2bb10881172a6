"""What makes an embedding model of a checkpoint folder: the files of sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PACKAGE = "sentence_transformers.models"
FLAGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def write_pooling(
    folder: Path, size: int, mode: str = "lasttoken", modules: tuple[str, ...] = ("Transformer", "Pooling", "Normalize")
) -> Path:
    paths = ["" if name == "Transformer" else f"{index}_{name}" for index, name in enumerate(modules)]
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"{PACKAGE}.{name}"}
        for index, (name, path) in enumerate(zip(modules, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    pooling: dict[str, Any] = {"word_embedding_dimension": size}
    pooling |= {f"pooling_mode_{flag}": flag == mode for flag in FLAGS}
    pooling_folder = folder / paths[modules.index("Pooling")]
    pooling_folder.mkdir(exist_ok=True)
    (pooling_folder / "config.json").write_text(json.dumps(pooling))
    return folder
