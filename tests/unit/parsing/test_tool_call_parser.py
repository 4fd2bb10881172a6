"""Calls in every format that models write; what is none stays text, to the character."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.parsing.parsed_answers import TOOLS, answer_of, events_of

from edgellm.parsing.answer_events import CallStart, TextPiece, merged
from edgellm.parsing.answer_parser import TOOL_PARSER_NAMES, AnswerFormat, AnswerParser
from edgellm.parsing.tool_call_parser import MAX_CALL_CHARACTERS

BASEL = ("get_weather", {"city": "Basel"})
BASEL_JSON = '{"name": "get_weather", "arguments": {"city": "Basel"}}'
HERMES = f"<tool_call>\n{BASEL_JSON}\n</tool_call>"
XML = "<function=get_weather>\n<parameter=city>\nBasel\n</parameter>\n</function>"
STOP_JSON = '{"name": "stop", "arguments": {}}'


def test_the_registry_has_the_names_that_users_know() -> None:
    assert set(TOOL_PARSER_NAMES) == {"auto", "generic", "hermes", "qwen3_xml", "nemotron", "openai"}


@pytest.mark.parametrize(
    ("parsers", "text"),
    [
        ("hermes qwen3_xml nemotron generic openai", HERMES),
        ("hermes generic", f"<tool_call>{BASEL_JSON}"),
        ("hermes generic", f"<tool_call>\n{BASEL_JSON}\n</tool_c"),
        ("hermes generic", f"<tool_call>[{BASEL_JSON}]</tool_call>"),
        ("hermes generic", '<tool_call>{"type": "function", "function": ' + BASEL_JSON + "}</tool_call>"),
        ("hermes generic", HERMES.replace('{"city": "Basel"}', json.dumps('{"city": "Basel"}'))),
        ("hermes generic", HERMES.replace("arguments", "parameters")),
        ("qwen3_xml nemotron generic hermes", f"<tool_call>\n{XML}\n</tool_call>"),
        ("qwen3_xml nemotron generic", XML),
        ("qwen3_xml generic", '<function=get_weather>{"city": "Basel"}</function>'),
        ("qwen3_xml generic", f"<tool_call>{XML}"),
        ("nemotron generic", f"<TOOLCALL>[{BASEL_JSON}]</TOOLCALL>"),
        ("generic", f"[TOOL_CALLS][{BASEL_JSON}]"),
        ("generic", '[TOOL_CALLS]get_weather[ARGS]{"city": "Basel"}'),
        ("generic", '[TOOL_CALLS]get_weather[CALL_ID]x1[ARGS]{"city": "Basel"}'),
        ("generic", f"[TOOL_CALL]{BASEL_JSON}[/TOOL_CALL]"),
        ("generic", f"<|python_tag|>{BASEL_JSON}"),
        ("generic", BASEL_JSON),
        ("generic", f" \n{BASEL_JSON}\n"),
        ("generic", f"[{BASEL_JSON}]"),
        ("generic", '{"type": "function", "name": "get_weather", "parameters": {"city": "Basel"}}'),
        ("generic", f'{{"tool_calls": [{BASEL_JSON}]}}'),
        ("generic", f"<tool_calls>[{BASEL_JSON}]</tool_calls>"),
        ("generic", f"<function_call>{BASEL_JSON}</function_call>"),
        (
            "generic",
            '<atem:function_calls>\n<atem:invoke name="get_weather">\n<atem:parameter name="city">Basel'
            "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
        ),
        (
            "openai",
            '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Basel"}<|call|>',
        ),
        ("openai", ' to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Basel"}'),
    ],
)
def test_a_call_in_its_format(parsers: str, text: str) -> None:
    for parser in parsers.split():
        answer = answer_of(text, parser)
        assert (answer.calls, answer.text) == ([BASEL], ""), parser


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("hermes", f"{HERMES}\n<tool_call>{STOP_JSON}</tool_call>"),
        ("hermes", f"<tool_call>{BASEL_JSON}\n{STOP_JSON}</tool_call>"),
        ("nemotron", f"<TOOLCALL>[{BASEL_JSON}, {STOP_JSON}]</TOOLCALL>"),
        ("qwen3_xml", f"<tool_call>{XML}</tool_call><tool_call><function=stop></function></tool_call>"),
        ("qwen3_xml", f"{XML}\n<function=stop>\n</function>\n"),
        ("generic", f"{BASEL_JSON}; {STOP_JSON}"),
        ("generic", f"{BASEL_JSON}\n{STOP_JSON}"),
        ("generic", f"<|python_tag|>{BASEL_JSON};{STOP_JSON}"),
        ("generic", f"[TOOL_CALLS][{BASEL_JSON},{STOP_JSON}]"),
        ("generic", '[TOOL_CALLS]get_weather[ARGS]{"city": "Basel"}[TOOL_CALLS]stop[ARGS]{}'),
        (
            "openai",
            '<|channel|>commentary to=functions.get_weather<|message|>{"city": "Basel"}<|call|>'
            "<|start|>assistant<|channel|>commentary to=functions.stop<|message|>{}<|call|>",
        ),
    ],
)
def test_several_calls(parser: str, text: str) -> None:
    answer = answer_of(text, parser)
    assert (answer.calls, answer.text) == ([BASEL, ("stop", {})], "")
    one = answer_of(text, parser, parallel_tool_calls=False)
    assert (one.calls, one.text) == ([BASEL], "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Let me look.\n\n{HERMES}", "Let me look."),
        (f"{HERMES}\n\nDone.", "Done."),
        (f"First. {HERMES} Then.", "First.  Then."),
        (f"a<b {HERMES}", "a<b"),
        (f"<tool {HERMES}", "<tool"),
        (f"  {HERMES}  ", ""),
    ],
)
def test_text_beside_a_call_stays(text: str, said: str) -> None:
    answer = answer_of(text, "hermes")
    assert (answer.calls, answer.text) == ([BASEL], said)


@pytest.mark.parametrize("parser", ["generic", "hermes", "qwen3_xml", "nemotron", "openai"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Plain text.\n",
        "<tool_call>",
        "<tool_call>\n\n",
        "<tool_call></tool_call>",
        "<tool_call>hello</tool_call>",
        "<tool_call>{}</tool_call>",
        "<tool_call>{bad}</tool_call>",
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "stop", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "stop", "arguments": "no JSON"}</tool_call>',
        '<tool_call>{"name": "stop", "arguments": {"a": 1}',
        '<tool_call>{"name": "stop", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": 5}</tool_call>',
        f"<tool_call>[{BASEL_JSON}, 5]</tool_call>",
        "<function=unknown></function>",
        "<function=get_weather><parameter=city>Bas",
        "<function=get_weather>nothing</function>",
        "<function=" + "x" * 400,
        "<TOOLCALL>[]</TOOLCALL>",
        '{"answer": 42}',
        "[1, 2, 3]",
        "{ not json",
        '{"name": "Basel", "population": 170000}',
        '{"name":',
        "[",
        "{",
        "[TOOL_CALLS]unknown[ARGS]{}",
        "[TOOL_CALLS]",
        "<|python_tag|>print(5)",
        "x < y and [z]",
        "é <tool_call>" + '{"a":' * 200,
        "<atem:function_calls><atem:invoke name=",
    ],
)
def test_what_is_no_call_is_text_to_the_character(parser: str, text: str) -> None:
    answer = answer_of(text, parser)
    assert (answer.text, answer.calls) == (text, [])


def test_a_good_call_after_a_broken_one_is_found() -> None:
    broken = '<tool_call>{"name": "get_weather", "arguments": {bad}}</tool_call>'
    answer = answer_of(f"{broken}\n{HERMES}", "hermes")
    assert (answer.text, answer.calls) == (broken, [BASEL])


def test_marks_inside_arguments_do_not_end_the_call() -> None:
    arguments = {"code": "</tool_call> <tool_call> \"}'] \\ é\n"}
    text = f"<tool_call>{json.dumps({'name': 'run', 'arguments': arguments})}</tool_call>"
    assert answer_of(text, "hermes").calls == [("run", arguments)]
    element = "<function=run><parameter=code>\nprint('</function> <tool_call>')\n\n</parameter></function>"
    assert answer_of(element, "qwen3_xml").calls == [("run", {"code": "print('</function> <tool_call>')\n"})]


@pytest.mark.parametrize(
    ("key", "written", "meant"),
    [
        ("city", "5", "5"),
        ("city", "", ""),
        ("city", "null", "null"),
        ("days", "3", 3),
        ("days", "three", "three"),
        ("exact", "True", True),
        ("exact", "false", False),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("tags", "a, b", "a, b"),
        ("limit", "2.5", 2.5),
        ("limit", "null", None),
        ("limit", "NaN", "NaN"),
        ("unknown", "7", "7"),
        ("days", "9" * 5000, "9" * 5000),
    ],
)
def test_an_element_means_what_the_schema_says(key: str, written: str, meant: Any) -> None:
    answer_format = AnswerFormat(tool_parser="qwen3_xml", tools=TOOLS)
    text = f"<function=get_weather><parameter={key}>\n{written}\n</parameter></function>"
    [_, arguments, _] = events_of(answer_format, [text])
    assert json.loads(arguments.text) == {key: meant}  # type: ignore[union-attr]


def test_half_a_surrogate_pair_stays_escaped() -> None:
    text = '<tool_call>{"name": "run", "arguments": {"a": "\\ud800 é"}}</tool_call>'
    [_, arguments, _] = events_of(AnswerFormat(tool_parser="hermes", tools=TOOLS), [text])
    arguments.text.encode()  # type: ignore[union-attr]
    assert json.loads(arguments.text) == {"a": "\ud800 é"}  # type: ignore[union-attr]


def test_a_call_is_given_out_as_soon_as_it_is_complete() -> None:
    parser = AnswerParser(AnswerFormat(tool_parser="hermes", tools=TOOLS))
    assert parser.feed(f"Hi <tool_call>{BASEL_JSON[:-1]}") == [TextPiece("Hi")]
    assert isinstance(parser.feed("}")[0], CallStart)


def test_ids_differ() -> None:
    parser = AnswerParser(AnswerFormat(tool_parser="hermes", tools=TOOLS))
    events = parser.feed(HERMES + HERMES)
    ids = [event.id for event in events if isinstance(event, CallStart)]
    assert len(set(ids)) == 2
    assert all(call_id.startswith("call_") for call_id in ids)


def test_json_that_cannot_be_a_call_is_not_held_back() -> None:
    parser = AnswerParser(AnswerFormat(tool_parser="generic", tools=TOOLS))
    assert merged(list(parser.feed('{"answer": '))) == [TextPiece('{"answer":')]


@pytest.mark.parametrize(
    ("text", "reason", "told"),
    [
        (HERMES, "stop", "tool_calls"),
        (HERMES, "length", "tool_calls"),
        (HERMES + HERMES[:30], "length", "length"),
        (HERMES + HERMES[:30], "stop", "tool_calls"),
        (HERMES, "error", "error"),
        ("Hi", "stop", "stop"),
        (HERMES[:30], "length", "length"),
    ],
)
def test_why_an_answer_ended(text: str, reason: str, told: str) -> None:
    parser = AnswerParser(AnswerFormat(tool_parser="hermes", tools=TOOLS))
    parser.feed(text)
    parser.finish()
    assert parser.finish_reason(reason) == told


HOSTILE = {
    "openers": "<tool_call>",
    "half marks": "<tool_cal",
    "spaces": " ",
    "a string": '<tool_call>{"name": "run", "arguments": {"a": "',
    "brackets": "[[{",
    "separators": '{"name": "stop"};;',
    "elements": "<function=run><parameter=a>",
    "values": "<function=run><parameter=a>x</parameter>",
    "named": "[TOOL_CALLS]stop",
    "channels": "<|channel|>analysis<|message|>",
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("parser_name", ["generic", "openai", "qwen3_xml"])
def test_hostile_text_is_looked_at_once(kind: str, parser_name: str) -> None:
    """What is looked at again with each piece stays short, so the work grows with the text and not with its square."""
    unit = HOSTILE[kind]
    text = unit + ("x" if kind == "a string" else unit) * 3000
    parser = AnswerParser(AnswerFormat("qwen3", parser_name, tools=TOOLS))
    for at in range(0, len(text), 3):
        parser.feed(text[at : at + 3])
        assert parser.unread_characters < 600
    parser.finish()


def test_a_call_that_never_ends_is_let_go() -> None:
    parser = AnswerParser(AnswerFormat(tool_parser="hermes", tools=TOOLS))
    text = '<tool_call>{"name": "run", "arguments": {"a": "'
    said = parser.feed(text)
    said += parser.feed("x" * MAX_CALL_CHARACTERS)
    assert said == [TextPiece(text + "x" * MAX_CALL_CHARACTERS)]
