"""Reasoning is told apart from the answer, however the text is cut."""

from __future__ import annotations

import pytest
from tests.unit.parsing.parsed_answers import answer_of

from edgellm.parsing.answer_parser import REASONING_PARSER_NAMES

THINKING = ("qwen3", "deepseek_r1", "nemotron")


def test_the_registry_has_the_names_that_users_know() -> None:
    assert REASONING_PARSER_NAMES == ("auto", "none", "qwen3", "deepseek_r1", "nemotron", "muse_glimmer")


@pytest.mark.parametrize("name", THINKING)
@pytest.mark.parametrize(
    ("text", "inside", "reasoning", "said"),
    [
        ("<think>\nHm, 2 < 3.\n</think>\n\nThree.", False, "Hm, 2 < 3.", "Three."),
        ("Hm.\n</think>\n\nThree.", True, "Hm.", "Three."),
        ("\n\n<think>a</think>b", False, "a", "b"),
        ("<think>\n\n</think>\n\nThree.", False, "", "Three."),
        ("</think>Three.", True, "", "Three."),
        ("<think>never ends </thin", False, "never ends </thin", ""),
        ("still thinking ", True, "still thinking ", ""),
        ("Three. <think>no</think>", False, "", "Three. <think>no</think>"),
        ("<think>a</think>b <think>c</think>", False, "a", "b <think>c</think>"),
        ("<thinking>a</thinking>", False, "", "<thinking>a</thinking>"),
        ("<thi", False, "", "<thi"),
        ("", False, "", ""),
        ("Plain.", False, "", "Plain."),
        ("a </b> c</think>d", True, "a </b> c", "d"),
        (" " * 100 + "<think>a</think>", False, "", " " * 100 + "<think>a</think>"),
        ("a" + " " * 100 + "</think>b", True, "a" + " " * 36, "b"),
    ],
)
def test_a_think_block(name: str, text: str, inside: bool, reasoning: str, said: str) -> None:
    answer = answer_of(text, reasoning_parser=name, starts_in_reasoning=inside)
    assert (answer.reasoning, answer.text) == (reasoning, said)


def test_without_a_parser_marks_are_text() -> None:
    assert answer_of("<think>a</think>b").text == "<think>a</think>b"


@pytest.mark.parametrize(
    ("text", "reasoning", "said"),
    [
        (" to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Three.<|eot|>", "Hm.", "Three."),
        (" to=user<|message|>Three.<|eot|>", "", "Three."),
        (" to=self<|message|>Hm. <|x|>", "Hm. <|x|>", ""),
        (" to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b<|eom|>", "ab", ""),
        ("Three.", "", "Three."),
        (" to the end", "", " to the end"),
        (" to=", "", " to="),
        (" to=" + "x" * 300, "", " to=" + "x" * 300),
        (" to=user<|message|>a<|eot|>b", "", "ab"),
        (" to=self<|message|>a<|eom|><|start|>assistant to=us", "a", "assistant to=us"),
    ],
)
def test_messages_to_itself_are_the_reasoning_of_muse_glimmer(text: str, reasoning: str, said: str) -> None:
    answer = answer_of(text, reasoning_parser="muse_glimmer")
    assert (answer.reasoning, answer.text) == (reasoning, said)


def test_a_call_after_reasoning_is_found_and_one_within_is_not() -> None:
    call = '<tool_call>{"name": "stop"}</tool_call>'
    answer = answer_of(f"<think>{call}</think>{call}", "hermes", "qwen3")
    assert (answer.reasoning, answer.text, answer.calls) == (call, "", [("stop", {})])


def test_muse_glimmer_thinks_and_calls() -> None:
    call = (
        '<atem:function_calls><atem:invoke name="get_weather"><atem:parameter name="city">Basel</atem:parameter>'
        '<atem:parameter name="days">2</atem:parameter></atem:invoke></atem:function_calls>'
    )
    text = f" to=self<|message|>Hm.<|eom|><|start|>assistant to=tool<|message|>{call}<|eot|>"
    answer = answer_of(text, "generic", "muse_glimmer")
    assert (answer.reasoning, answer.text) == ("Hm.", "")
    assert answer.calls == [("get_weather", {"city": "Basel", "days": 2})]


def test_gpt_oss_thinks_says_and_calls() -> None:
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{}<|call|>"
    )
    answer = answer_of(text, "openai")
    assert (answer.reasoning, answer.text, answer.calls) == ("Hm.", "I look.", [("stop", {})])
    unknown = answer_of(text.replace("functions.stop", "functions.x"), "openai")
    assert unknown.text == "I look.assistant<|channel|>commentary to=functions.x <|constrain|>json<|message|>{}"
