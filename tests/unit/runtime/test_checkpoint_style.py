"""How a checkpoint's model writes is told from its files, for runtimes that render prompts themselves."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.unit.parsing.family_templates import DEEPSEEK_R1, MISTRAL, QWEN3

from edgellm.parsing.chat_template import CLIENT_FIELDS
from edgellm.runtime.checkpoint_style import checkpoint_style

TOKENIZER = {
    "added_tokens": [
        {"id": 7, "content": "<think>", "special": False},
        {"id": 8, "content": "</think>", "special": False},
        {"id": 9, "content": "[TOOL_CALLS]", "special": True},
    ]
}


def _checkpoint(folder: Path, template: object = None, **config: Any) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "<s>"}, **config}))
    return folder


def test_a_template_decides(tmp_path: Path) -> None:
    style, fields = checkpoint_style(_checkpoint(tmp_path, QWEN3), "some-model")
    assert (style.reasoning_parser, style.tool_parser, style.shows_tools) == ("qwen3", "hermes", True)
    assert (style.reasoning_start_token, style.reasoning_end_token, style.special_marks) == (7, 8, False)
    assert fields == {"enable_thinking"}


def test_of_several_templates_the_default_one_counts_and_a_file_wins(tmp_path: Path) -> None:
    templates = [{"name": "other", "template": QWEN3}, {"name": "default", "template": MISTRAL}]
    style, fields = checkpoint_style(_checkpoint(tmp_path, templates, add_bos_token=True), "some-model")
    assert (style.tool_parser, style.special_marks, fields) == ("generic", True, frozenset())
    (tmp_path / "chat_template.jinja").write_text(DEEPSEEK_R1)
    style, _ = checkpoint_style(tmp_path, "deepseek-r1")
    assert (style.reasoning_parser, style.opens_reasoning) == ("deepseek_r1", True)


@pytest.mark.parametrize("template", [None, 5, "{% for %}"])
def test_without_a_template_that_can_be_read_the_name_decides(
    tmp_path: Path, template: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        style, fields = checkpoint_style(_checkpoint(tmp_path, template), "Qwen3-Coder")
    assert (style.reasoning_parser, style.tool_parser, style.shows_tools) == ("qwen3", "qwen3_xml", True)
    assert fields == CLIENT_FIELDS
    assert ("not understood" in caplog.text) is (template is not None)


def test_a_checkpoint_without_any_of_these_files(tmp_path: Path) -> None:
    style, _ = checkpoint_style(tmp_path, "llama")
    assert (style.reasoning_parser, style.tool_parser, style.shows_tools) == ("none", "generic", True)
