"""checkpoint_style: how the model of a checkpoint writes, for a runtime that renders and tokenises for itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgellm.engines.checkpoint_names import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from edgellm.engines.json_file import parse_object, read_object, read_text_file
from edgellm.engines.template_file import chat_template
from edgellm.errors import EdgeLLMError
from edgellm.parsing.chat_template import CLIENT_FIELDS, ChatTemplate
from edgellm.parsing.output_style import OutputStyle, output_style
from edgellm.parsing.prompt_codec import named_tokens
from edgellm.parsing.template_traits import template_traits
from edgellm.runtime.bundle_codec import MAX_CONFIG_BYTES

_log = logging.getLogger(__name__)


def checkpoint_style(directory: Path, model_name: str) -> tuple[OutputStyle, frozenset[str]]:
    """The style, and the fields that clients may set with effect on the template.

    The runtime reads these files, too, and decides whether they serve: what cannot be read here is told by the name.
    """
    try:
        source = chat_template(directory)
        ids, special = _added_tokens(directory / TOKENIZER_FILE)
        template = None if source is None else ChatTemplate(source, _named_tokens(directory))
        traits = None if template is None else template_traits(template)
        style = output_style(template, traits, special, ids.get, model_name)
    except (EdgeLLMError, OSError) as error:
        _log.warning("%s: chat template or tokenizer not understood, parsers are chosen by name: %s", model_name, error)
        template, style = None, output_style(None, None, (), lambda text: None, model_name)
    if template is None:
        return style.with_tools_shown(), CLIENT_FIELDS
    return style, template.client_fields


def _named_tokens(directory: Path) -> dict[str, str]:
    path = directory / TOKENIZER_CONFIG_FILE
    return named_tokens(read_object(path, MAX_CONFIG_BYTES) if path.exists() else {})


def _added_tokens(path: Path) -> tuple[dict[str, int], set[str]]:
    """Ids of the added tokens by their texts, and the texts of those that are control tokens."""
    tokenizer: Mapping[str, Any] = parse_object(path, read_text_file(path)) if path.exists() else {}
    entries = tokenizer.get("added_tokens")
    ids: dict[str, int] = {}
    special: set[str] = set()
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("content"), str) and isinstance(entry.get("id"), int):
            ids[entry["content"]] = entry["id"]
            if entry.get("special") is True:
                special.add(entry["content"])
    return ids, special
