"""Guides over whole answers: what they let a model write is what the parsers read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.parsing.parsed_answers import Answer, events_of, gathered

from edgellm.errors import RequestError
from edgellm.parsing.answer_parser import TOOL_PARSER_NAMES, AnswerFormat, AnswerParser
from edgellm.parsing.output_style import OutputStyle
from edgellm.runtime.answer_guide import AnswerGuide, GuidePaths, writes_think_blocks
from edgellm.runtime.guided_decoding import GuidedDecoding
from edgellm.runtime.tools import Tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
LOOK = Tool("look", parameters=json.dumps(SCHEMA), has_parameters=True)
STOP = Tool("stop")
THOUGHT = "<think>I look.</think><tool_call>\n{"
PARSERS = [name for name in TOOL_PARSER_NAMES if name != "auto"]


def _format(guide: AnswerGuide, **options: bool) -> dict[str, Any]:
    whole, _ = guide.guide(**{"starts_in_reasoning": False, "may_reason": False, **options})
    made: dict[str, Any] = json.loads(whole.guide)["format"]
    return made


@pytest.mark.parametrize("parser", PARSERS)
def test_the_parser_of_a_style_reads_what_its_guide_allows(parser: str) -> None:
    guide = AnswerGuide(OutputStyle(tool_parser=parser))
    guide.add_calls([(0, LOOK), (1, STOP)], parallel=True)
    form = _format(guide)
    look, stop = form["tags"]
    written = look["begin"] + '{"city": "Basel"}' + look["end"]
    expected: list[tuple[str, Any]] = [("look", {"city": "Basel"})]
    if "stop_after_first" not in form:
        written += form["separator"] + stop["begin"] + "{ }" + stop["end"]
        expected.append(("stop", {}))
    answer_format = AnswerFormat(tool_parser=parser, tools={"look": SCHEMA, "stop": {}})
    answer = gathered(events_of(answer_format, [written]))
    assert (answer.calls, answer.text) == (expected, "")


@pytest.mark.parametrize("parser", [name for name in PARSERS if name != "none"])
def test_a_call_that_is_enforced_and_cut_off_is_no_text(parser: str) -> None:
    guide = AnswerGuide(OutputStyle(tool_parser=parser))
    guide.add_calls([(0, LOOK)], parallel=True)
    form = _format(guide)
    [look] = form["tags"]
    call = look["begin"] + '{"city": "Basel"}' + look["end"]
    mark = call[: call.index(">") + 1]  # all that it takes to know a call
    answer_format = AnswerFormat(tool_parser=parser, tools={"look": SCHEMA}, calls_enforced=True)

    def read(text: str) -> tuple[Answer, str | None]:
        answer_parser = AnswerParser(answer_format)
        events = [event for piece in text for event in answer_parser.feed(piece)] + answer_parser.finish()
        assert gathered(events_of(answer_format, [text])) == gathered(events)
        return gathered(events), answer_parser.finish_reason("length")

    for cut in range(len(call) - len(look["end"])):
        assert read(call[:cut]) == (Answer(), "length")
    if "stop_after_first" not in form:
        first = Answer(calls=[("look", {"city": "Basel"})])
        for cut in range(1, len(call) - len(look["end"])):
            assert read(call + form["separator"] + call[:cut]) == (first, "length")
        assert read(call) == (first, "tool_calls")
    written_freely = AnswerFormat(tool_parser=parser, tools={"look": SCHEMA})
    assert gathered(events_of(written_freely, [call[: len(mark) + 5]])).text == call[: len(mark) + 5]


@pytest.mark.parametrize("cut", range(1, len(THOUGHT)))
def test_reasoning_before_an_enforced_call_that_never_came_is_kept(cut: int) -> None:
    answer_format = AnswerFormat("qwen3", "hermes", tools={"look": SCHEMA}, calls_enforced=True)
    answer = gathered(events_of(answer_format, list(THOUGHT[:cut])))
    assert answer.text == ""
    assert answer.reasoning == THOUGHT[len("<think>") : cut].partition("</think>")[0]


@pytest.mark.parametrize("cut", range(len("<tool_call>"), len(THOUGHT) - len("<think>I look.</think>")))
def test_half_a_call_beside_a_form_is_neither(cut: int) -> None:
    call = THOUGHT.partition("</think>")[2]
    beside_a_form = AnswerFormat("none", "hermes", tools={"look": SCHEMA}, calls_guided=True)
    assert gathered(events_of(beside_a_form, list(call[:cut]))).text == ""
    for form in ('{"city": "Basel"}', '{"city": "<tool', "<", "<tool_cal"):
        assert gathered(events_of(beside_a_form, list(form))).text == form


def test_arguments_have_the_properties_that_are_named_and_no_others() -> None:
    def arguments(schema: dict[str, Any] | None) -> Any:
        tool = STOP if schema is None else Tool("f", parameters=json.dumps(schema), has_parameters=True)
        guide = AnswerGuide(OutputStyle())
        guide.add_calls([(0, tool)], parallel=False)
        return _format(guide)["tags"][0]["content"]["json_schema"]

    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    assert arguments(None) == arguments({}) == nothing
    assert arguments(SCHEMA) == {**SCHEMA, "additionalProperties": False}
    for kept in (
        {**SCHEMA, "additionalProperties": True},
        {**SCHEMA, "patternProperties": {"x": {}}},
        {"type": "object", "anyOf": [SCHEMA]},
        {"type": "object"},
    ):
        assert arguments(kept) == kept
    assert arguments({"properties": {}})["type"] == "object"


def test_reasoning_comes_before_where_it_is_open_and_may_where_it_is_asked_for() -> None:
    style = OutputStyle(reasoning_parser="qwen3")
    guide = AnswerGuide(style)
    guide.add_form(GuidedDecoding("regex", "a+"), "guided_decoding.regex")
    opened = _format(guide, starts_in_reasoning=True)
    assert opened["elements"][0] == {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": "</think>"}
    asked = _format(guide, may_reason=True)
    assert asked["type"] == "or"
    assert asked["elements"][0] == {"type": "regex", "pattern": "a+"}
    assert asked["elements"][1]["elements"][0]["begin"] == "<think>"
    assert writes_think_blocks(style)
    for other in (OutputStyle(), OutputStyle("muse_glimmer"), OutputStyle("qwen3", "openai")):
        assert not writes_think_blocks(other)


def test_errors_get_the_names_of_the_fields_that_asked() -> None:
    guide = AnswerGuide(OutputStyle())
    guide.add_form(GuidedDecoding("json_schema", json.dumps(SCHEMA)), "response_format.json_schema.schema")
    guide.add_calls([(4, LOOK)], parallel=True)
    _, paths = guide.guide(starts_in_reasoning=False, may_reason=True)
    inside, form = "guided_decoding.structural_tag.format", "response_format.json_schema.schema"
    for path, asked in {
        f"{inside}.elements[0].elements[0].json_schema.properties.city.x": f"{form}.properties.city.x",
        f"{inside}.elements[0].elements[1].tags[0].content.json_schema.x": "tools[4].function.parameters.x",
        f"{inside}.elements[1].elements[1].elements[1].tags[0].content.json_schema.x": "tools[4].function.parameters.x",
        "messages[0]": "messages[0]",
        inside: f"{form}.format",
    }.items():
        error = paths.as_asked(RequestError(f"{path} is wrong", param=path))
        assert (error.param, str(error)) == (asked, f"{asked} is wrong")
    unchanged = RequestError("x", param=None)
    assert GuidePaths().as_asked(unchanged) is unchanged


def test_a_guide_that_is_too_large_is_laid_to_the_tools() -> None:
    huge = {"type": "object", "properties": {"x": {"enum": ["y" * 1000] * 200}}}
    guide = AnswerGuide(OutputStyle())
    guide.add_calls([(0, Tool("f", parameters=json.dumps(huge), has_parameters=True))], parallel=True)
    with pytest.raises(RequestError) as refusal:
        guide.guide(starts_in_reasoning=False, may_reason=False)
    assert refusal.value.param == "tools[0].function.parameters"


def test_a_tag_without_a_format_cannot_stand_beside_others() -> None:
    with pytest.raises(RequestError) as refusal:
        AnswerGuide(OutputStyle()).add_form(GuidedDecoding("structural_tag", "{}"), "guided_decoding.structural_tag")
    assert refusal.value.param == "guided_decoding.structural_tag"


def test_tools_that_are_too_large_together_are_named_together() -> None:
    described = {"type": "object", "properties": {"a": {"type": "string", "description": "x" * 1300}}}
    tool = Tool("f", parameters=json.dumps(described), has_parameters=True)
    guide = AnswerGuide(OutputStyle(tool_parser="hermes"))
    guide.add_calls([(index, tool) for index in range(100)], parallel=True)
    with pytest.raises(RequestError, match=r"^tools has \d+ bytes; the limit is 131072") as refusal:
        guide.guide(starts_in_reasoning=False, may_reason=False)
    assert refusal.value.param == "tools"
