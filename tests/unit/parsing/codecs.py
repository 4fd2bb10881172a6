"""Codecs over tiny tokenizers with any template."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.models.tiny_tokenizer import CHATML_TEMPLATE, TinyTokenizer

from edgellm.parsing.prompt_codec import PromptCodec


@cache
def tokenizer_text(tokenizer: TinyTokenizer) -> tuple[str, str]:
    """The texts of tokenizer.json and tokenizer_config.json."""
    with TemporaryDirectory() as folder:
        tokenizer.write(Path(folder), 1024)
        return (
            Path(folder, "tokenizer.json").read_text(encoding="utf-8"),
            Path(folder, "tokenizer_config.json").read_text(encoding="utf-8"),
        )


@cache
def codec(tokenizer: TinyTokenizer, template: str | None = CHATML_TEMPLATE) -> PromptCodec:
    tokenizer_json, config = tokenizer_text(tokenizer)
    return PromptCodec(tokenizer_json, json.loads(config), template)
