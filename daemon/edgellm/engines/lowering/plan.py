"""LoweringPlan: what it takes to make a bundle of one source, known before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from edgellm.engines.bundle import Bundle
from edgellm.engines.progress import ProgressCallback

# Part of every key. Raise it whenever the files of a bundle would come out differently for the same checkpoint:
# tensor layout, quantiser (gguf is pinned), metadata, tokenizer, template or config.
LOWERING_VERSION = 1
QUANTISATIONS = ("auto", "f32", "f16", "q8_0", "q4_0", "q4_1")


class LoweringPlan(Protocol):
    """``checkpoint_digest`` identifies the source whatever its path; ``output_bytes`` is what the bundle will take."""

    @property
    def checkpoint_digest(self) -> str: ...

    @property
    def output_bytes(self) -> int: ...

    def write(self, directory: Path, on_progress: ProgressCallback) -> Bundle:
        """Fill the empty ``directory`` with every file of the bundle."""
        ...


def write_json(path: Path, content: dict[str, Any]) -> None:
    with path.open("x", encoding="utf-8") as stream:
        json.dump(content, stream, ensure_ascii=False, separators=(",", ":"))
        stream.write("\n")


def write_text(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="") as stream:
        stream.write(text)
