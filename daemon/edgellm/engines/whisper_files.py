"""Which files make a Whisper model in CTranslate2's format, in a folder and in a repository alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edgellm.errors import ModelSourceError

KIND: Final = "whisper"  # of what a hub's reference names
WEIGHTS_FILE: Final = "model.bin"
REQUIRED_FILES: Final = (WEIGHTS_FILE, "config.json", "tokenizer.json")
VOCABULARY_FILES: Final = ("vocabulary.txt", "vocabulary.json")
FILES: Final = (*REQUIRED_FILES, *VOCABULARY_FILES, "preprocessor_config.json")


def looks_like_whisper(names: Iterable[str]) -> bool:
    """``names`` are those of the files of one folder."""
    there = set(names)
    return WEIGHTS_FILE in there and not there.isdisjoint(VOCABULARY_FILES)


def refuse_incomplete(label: str, names: Iterable[str]) -> None:
    """Raise ModelSourceError for what lacks a file that every such model has; ``label`` names it."""
    there = set(names)
    lacking = next((name for name in REQUIRED_FILES if name not in there), None)
    if lacking is None and there.isdisjoint(VOCABULARY_FILES):
        lacking = " nor ".join(VOCABULARY_FILES)
    if lacking is not None:
        raise ModelSourceError(
            f"{label}: no {lacking} — give a Whisper model in CTranslate2's format (ct2-transformers-converter makes "
            "one, with --copy_files tokenizer.json preprocessor_config.json)"
        )
