"""The codec of a bundle, made of the tokenizer and template files in it."""

from __future__ import annotations

from pathlib import Path

from edgellm.engines.bundle import CHAT_TEMPLATE_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from edgellm.engines.json_file import read_object, read_text_file
from edgellm.errors import CheckpointError, UnsupportedModelError
from edgellm.parsing.prompt_codec import PromptCodec

MAX_CONFIG_BYTES = 16 << 20


def bundle_codec(directory: Path) -> PromptCodec:
    """Raises CheckpointError or UnsupportedModelError naming the file that is missing or wrong."""
    tokenizer_json = read_text_file(directory / TOKENIZER_FILE)
    config_path, template_path = directory / TOKENIZER_CONFIG_FILE, directory / CHAT_TEMPLATE_FILE
    config = read_object(config_path, MAX_CONFIG_BYTES) if config_path.exists() else {}
    template = read_text_file(template_path, MAX_CONFIG_BYTES) if template_path.exists() else None
    try:
        return PromptCodec(tokenizer_json, config, template)
    except (CheckpointError, UnsupportedModelError) as error:
        raise type(error)(f"{directory}: {error}") from None
