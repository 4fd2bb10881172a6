"""The chat template of a checkpoint: a file of its own, or a text in tokenizer_config.json."""

from __future__ import annotations

from pathlib import Path

from edgellm.engines.checkpoint_names import (
    CHAT_TEMPLATE_FILE,
    MAX_SMALL_FILE_BYTES,
    PROCESSOR_TEMPLATE_FILE,
    TOKENIZER_CONFIG_FILE,
)
from edgellm.engines.json_file import read_object, read_text_file
from edgellm.errors import CheckpointError

DEFAULT_TEMPLATE_NAME = "default"


def chat_template(directory: Path, *, of_processor: bool = False) -> str | None:
    """The template file wins over the one inside tokenizer_config.json; of several the default one counts.

    ``of_processor``: the tokenizer's template knows text alone, where its processor has one of its own.
    """
    template_path, config_path = directory / CHAT_TEMPLATE_FILE, directory / TOKENIZER_CONFIG_FILE
    if template_path.exists():
        return read_text_file(template_path, MAX_SMALL_FILE_BYTES)
    if of_processor and (directory / PROCESSOR_TEMPLATE_FILE).exists():
        config_path = directory / PROCESSOR_TEMPLATE_FILE
    template = read_object(config_path, MAX_SMALL_FILE_BYTES).get("chat_template") if config_path.exists() else None
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get(DEFAULT_TEMPLATE_NAME)
    if template is not None and not isinstance(template, str):
        raise CheckpointError(f"{config_path}: chat_template is not a text")
    return template
