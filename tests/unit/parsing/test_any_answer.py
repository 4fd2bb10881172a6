"""Properties of the parsers over any text: pieces equal the whole, and nothing of the text is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.parsing.parsed_answers import TOOLS, events_of, gathered

from edgellm.parsing.answer_parser import REASONING_PARSER_NAMES, TOOL_PARSER_NAMES, AnswerFormat

MARKS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<TOOLCALL>",
    "</TOOLCALL>",
    "<function=run>",
    "<function=",
    "<parameter=a>",
    "</parameter>",
    "</function>",
    "[TOOL_CALLS]",
    "run[ARGS]",
    "<|python_tag|>",
    '{"name": "run", "arguments": {"a": 1}}',
    '{"name": "stop"}',
    '{"name": "run", "arguments": ',
    '[{"name": "stop"}, ',
    "{",
    "}",
    "]",
    ";",
    " ",
    "\n\n",
    '"',
    "\\",
    "<|channel|>analysis<|message|>",
    "<|channel|>commentary to=functions.run<|message|>",
    "<|start|>assistant",
    "<|end|>",
    " to=self<|message|>",
    "<|eom|>",
    "<|eot|>",
]
PARTS = st.one_of(st.sampled_from(MARKS), st.text(max_size=6), st.sampled_from(MARKS).map(lambda mark: mark[:-1]))
TEXTS = st.lists(PARTS, max_size=14).map("".join)
FORMATS = st.builds(
    AnswerFormat,
    reasoning_parser=st.sampled_from([name for name in REASONING_PARSER_NAMES if name != "auto"]),
    tool_parser=st.sampled_from([name for name in TOOL_PARSER_NAMES if name != "auto"]),
    starts_in_reasoning=st.booleans(),
    parallel_tool_calls=st.booleans(),
    tools=st.just(TOOLS),
)


def _pieces(data: st.DataObject, text: str) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def check_pieces(data: st.DataObject, answer_format: AnswerFormat, text: str) -> None:
    whole = events_of(answer_format, [text])
    assert events_of(answer_format, _pieces(data, text)) == whole
    assert events_of(answer_format, list(text)) == whole
    gathered(whole)


@given(st.data(), FORMATS, TEXTS)
def test_pieces_say_what_the_whole_says(data: st.DataObject, answer_format: AnswerFormat, text: str) -> None:
    check_pieces(data, answer_format, text)


@pytest.mark.long
@settings(max_examples=30_000, deadline=None)
@given(st.data(), FORMATS, TEXTS)
def test_pieces_say_what_the_whole_says_at_length(data: st.DataObject, answer_format: AnswerFormat, text: str) -> None:
    check_pieces(data, answer_format, text)


def _visible(text: str) -> str:
    return "".join(text.split())


@given(FORMATS, TEXTS)
def test_an_answer_without_calls_has_all_its_text(answer_format: AnswerFormat, text: str) -> None:
    """But for the marks of reasoning, and white space beside them."""
    answer = gathered(events_of(answer_format, [text]))
    if answer.calls or answer_format.reasoning_parser == "muse_glimmer" or answer_format.tool_parser == "openai":
        return
    told = _visible(answer.reasoning + answer.text)
    assert told in {
        _visible(text),
        _visible(text).replace("<think>", "", 1),
        _visible(text).replace("</think>", "", 1),
        _visible(text).replace("<think>", "", 1).replace("</think>", "", 1),
    }


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(st.text(), _JSON, max_size=4)
PLAIN = st.text(st.characters(exclude_characters="<[{"), max_size=12)


@given(st.data(), PLAIN, st.lists(ARGUMENTS, min_size=1, max_size=3), st.booleans())
def test_calls_arrive_with_their_arguments(
    data: st.DataObject, before: str, calls: list[dict[str, Any]], ascii_only: bool
) -> None:
    wrapped = {
        "hermes": "<tool_call>\n{}\n</tool_call>",
        "nemotron": "<TOOLCALL>[{}]</TOOLCALL>",
        "generic": "[TOOL_CALLS]{}",
    }
    for parser, shape in wrapped.items():
        text = before + "\n".join(
            shape.replace("{}", json.dumps({"name": "run", "arguments": each}, ensure_ascii=ascii_only))
            for each in calls
        )
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        answer = gathered(events_of(AnswerFormat(tool_parser=parser, tools=TOOLS), _pieces(data, text)))
        assert [name for name, _ in answer.calls] == ["run"] * len(calls)
        if ascii_only:
            assert [arguments for _, arguments in answer.calls] == calls
        assert answer.text.strip() == before.strip()
