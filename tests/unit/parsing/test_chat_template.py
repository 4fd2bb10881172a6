from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.parsing.chat_templates import CONVERSATIONS, SPECIAL_TOKENS, TEMPLATES

from edgellm.errors import CheckpointError, RequestError
from edgellm.parsing.chat_template import ChatTemplate
from edgellm.parsing.render_budget import RenderLimits

RENDERINGS = json.loads(Path(__file__).with_name("renderings.json").read_text(encoding="utf-8"))
USER = {"role": "user", "content": "x"}


def render(source: str, **variables: Any) -> str:
    messages = variables.pop("messages", [USER])
    return ChatTemplate(source, SPECIAL_TOKENS).render(messages, variables.pop("tools", None), **variables)


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_renderings_equal_those_of_transformers(name: str, conversation: str) -> None:
    template = ChatTemplate(TEMPLATES[name], SPECIAL_TOKENS)
    expected = RENDERINGS[name][conversation]
    if expected is None:
        with pytest.raises(RequestError):
            template.render(**CONVERSATIONS[conversation])
    else:
        assert template.render(**CONVERSATIONS[conversation]) == expected


def test_whitespace_around_blocks_is_trimmed() -> None:
    assert render("a\n  {% if true %}\nb\n  {% endif %}\nc\n") == "a\nb\nc"


def test_json_is_neither_escaped_nor_sorted() -> None:
    assert render("{{ messages | tojson }}", messages=[{"role": "user", "content": "<ü'&>", "a": 1}]) == (
        '[{"role": "user", "content": "<ü\'&>", "a": 1}]'
    )
    assert render("{{ 'ü' | tojson(ensure_ascii=true) }}") == '"\\u00fc"'
    assert render("{{ {'b': 1, 'a': [2]} | tojson(indent=1, separators=[',', '='], sort_keys=true) }}") == (
        '{\n "a"=[\n  2\n ],\n "b"=1\n}'
    )


def test_variables_are_those_of_the_authors_tools() -> None:
    source = "{{ tools is none }} {{ documents is none }} {{ bos_token }} {{ enable_thinking is defined }}"
    assert render(source) == "True True <s> False"
    assert render("{{ enable_thinking }} {{ reasoning_effort }}", enable_thinking=False, reasoning_effort="low") == (
        "False low"
    )
    assert render("{{ reasoning_effort is defined }}", reasoning_effort="") == "False"


def test_the_date_is_todays() -> None:
    days = {datetime.now().strftime("%d %b %Y")}
    rendered = render("{{ strftime_now('%d %b %Y') }}")
    days.add(datetime.now().strftime("%d %b %Y"))
    assert rendered in days


def test_a_training_mark_renders_as_its_body_in_a_scope_of_its_own() -> None:
    assert render("{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}") == "21"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for x in y %}", "line 1: Unexpected end of template"),
        ("\n\n{{ 1 + }}", "line 3"),
        ("{% unknown %}", "line 1: Encountered unknown tag 'unknown'"),
        ("{{ x | nofilter }}", "line 1: No filter named 'nofilter'"),
        ("{{ " + "(" * 100_000 + " }}", "not valid"),
        ("{{ " + "-" * 100_000 + "1 }}", "not valid"),
        ("{% if a %}" * 5_000 + "{% endif %}" * 5_000, "not valid"),
        ("{% include 'x' %}{% extends 3 %}" + "x" * (1 << 20), "over 1048576 characters"),
    ],
)
def test_what_is_no_template_is_refused_when_loaded(source: str, reason: str) -> None:
    with pytest.raises(CheckpointError, match="chat template") as caught:
        ChatTemplate(source)
    assert reason in str(caught.value)


def refused(source: str, messages: list[dict[str, Any]] | None = None) -> RequestError:
    with pytest.raises(RequestError) as caught:
        render(source, messages=messages or [USER])
    return caught.value


def test_a_refusal_names_the_message_and_the_templates_reason() -> None:
    error = refused(
        "{% for m in messages if m.role == 'tool' %}{{ raise_exception('No  tool\nturns') }}{% endfor %}",
        [USER, {"role": "assistant", "content": "y"}, {"role": "tool", "content": "z"}, USER, USER],
    )
    assert error.param == "messages[2]"
    assert str(error) == "the model's chat template refuses the messages: No tool turns"


def test_a_refusal_that_repeats_a_message_does_not_repeat_it_to_the_log() -> None:
    error = refused(
        "{{ raise_exception('bad: ' ~ messages[0].content) }}", [{"role": "user", "content": "my secret word"}]
    )
    assert str(error) == "the model's chat template refuses the messages"
    parts = [
        {"role": "user", "content": [{"type": "text", "text": "my secret word"}, "other secret", {"type": "image"}]}
    ]
    assert "secret" not in str(refused("{{ raise_exception(messages[0].content[1]) }}", parts))


def test_a_long_reason_is_cut() -> None:
    assert len(str(refused("{{ raise_exception('x' * 5000) }}"))) < 300


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].missing.field }}",
        "{{ 'a' + 1 }}",
        "{{ messages[0]['content'] + none }}",
        "{{ 1 // 0 }}",
        "{{ ['a'][5].x }}",
        "{{ 'x'.no_such_method() }}",
        "{{ [1, 'a'] | sort }}",
        "{{ namespace | tojson }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for x in 3 %}{% endfor %}",
        "{{ '%d' % 'a' }}",
        "{% include 'other' %}",
        "{{ 'x'.encode('no-such-codec') }}",
    ],
)
def test_whatever_goes_wrong_inside_is_a_request_error(source: str) -> None:
    assert refused(source).param == "messages[0]"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ ''['__class__'] }}{{ ''|attr('__class__') }}{{ ''.__class__() }}",
        "{% set ns = namespace(__call__=1) %}",
        "{% set ns = namespace() %}{% set ns.__init__ = 1 %}",
        "{{ '{0.__class__}'.format(1).__class__() }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    messages = [dict(USER)]
    with pytest.raises(RequestError):
        render(source, messages=messages)
    assert messages == [USER]


SMALL = RenderLimits(seconds=60.0, steps=10_000, characters=100_000)


def repeated(start: str, step: str) -> str:
    return f"{{% set ns = namespace(x={start}) %}}{{% for i in range(99) %}}{{% set ns.x = {step} %}}{{% endfor %}}"


BOMBS = {
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "loops over given lists": (
        "{% set r = range(9999) | list %}{% for a in r %}{% for b in r %}x{% endfor %}{% endfor %}"
    ),
    "recursion without end": (
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"
    ),
    "recursive loop": "{% for i in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "doubling": repeated("'xxx'", "ns.x + ns.x"),
    "doubling by tilde": repeated("'xxx'", "ns.x ~ ns.x"),
    "doubling a list": repeated("[1, 2]", "ns.x + ns.x"),
    "captured output": (
        "{% set s %}{% for i in range(9000) %}{{ 'x' * 1000 }}{% endfor %}{% endset %}{{ s | length }}"
    ),
    "captured literals": "{% set s %}{% for i in range(9000) %}" + "x" * 1000 + "{% endfor %}{% endset %}done",
    "repeated text": "{{ 'x' * 1000000000000 }}",
    "repeated list": "{{ [0] * 1000000000000 }}",
    "huge power": "{{ 10 ** 1000000000 }}",
    "tower of powers": "{{ 9 ** 9 ** 9 ** 9 ** 9 }}",
    "huge product": repeated("10 ** 900", "ns.x * ns.x"),
    "wide percent field": "{{ '%1000000000d' % 1 }}",
    "width from an argument": "{{ '%*d' % (1000000000, 1) }}",
    "wide format field": "{{ '{:1000000000}'.format(1) }}",
    "nested format field": "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "centred": "{{ 'x'.center(1000000000) }}",
    "padded": "{{ 'x'.ljust(1000000000) }}",
    "zeros": "{{ 'x'.zfill(1000000000) }}",
    "tabs": "{{ '\t\t'.expandtabs(1000000000) }}",
    "center filter": "{{ 'x' | center(1000000000) }}",
    "indent filter": "{{ 'x\ny' | indent(1000000000) }}",
    "indented JSON": "{{ [[1]] | tojson(indent=1000000000) }}",
    "joined": "{{ (['x' * 1000] * 1000) | join('y' * 1000) }}",
    "joined by a method": "{{ ('y' * 1000).join(['x' * 1000] * 1000) }}",
    "replaced": "{{ ('x' * 10000) | replace('x', 'y' * 10000) }}",
    "replaced by a method": "{{ ('x' * 10000).replace('x', 'y' * 10000) }}",
    "replaced between all": "{{ ('x' * 10000).replace('', 'y' * 10000) }}",
    "batches": "{{ [1] | batch(1000000000, 'x') | list }}",
    "slices": "{{ [1] | slice(1000000000) | list }}",
    "mapped": "{{ ['x'] | map('center', 1000000000) | list }}",
}


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS.keys())
def test_a_template_that_costs_too_much_is_stopped(source: str) -> None:
    template = ChatTemplate(source, limits=SMALL)
    with pytest.raises(RequestError, match=r"costs too much on these messages|fails with RecursionError"):
        template.render([USER])


def test_time_is_limited_too() -> None:
    source = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    template = ChatTemplate(source, limits=RenderLimits(seconds=0.0))
    with pytest.raises(RequestError, match=r"costs too much on these messages \(more than 0 s\)"):
        template.render([USER])


def test_a_long_conversation_is_well_within_the_limits() -> None:
    messages = [{"role": ("user", "assistant")[index % 2], "content": "word " * 2000} for index in range(512)]
    assert len(ChatTemplate(TEMPLATES["reasoning"]).render(messages)) > 5_000_000


def test_empty_messages_are_refused_without_an_index() -> None:
    with pytest.raises(RequestError) as caught:
        ChatTemplate("{{ messages[0].role + 1 }}").render([])
    assert caught.value.param == "messages"
