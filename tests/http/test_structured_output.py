"""Structured output over HTTP: enforced or refused, never free text."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from tests.http.daemon_process import Daemon

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
QUESTION = "Tell me about a person."


def as_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "fields", [{"response_format": as_format(PERSON)}, {"guided_decoding": {"json_schema": PERSON}}]
)
def test_a_schema_is_enforced_however_hot_the_sampling(daemon: Daemon, seed: int, fields: dict[str, Any]) -> None:
    answer = daemon.chat(QUESTION, temperature=1.5, seed=seed, max_tokens=120, **fields).json()
    [choice] = answer["choices"]
    if choice["finish_reason"] == "stop":
        person = json.loads(choice["message"]["content"])
        assert set(person) == {"name", "age"}
        assert len(person["name"]) <= 12
        assert isinstance(person["age"], int)
        assert person["age"] >= 0
    else:  # white space is legal JSON, and may last until the end
        assert choice["message"]["content"].lstrip().startswith("{")


def test_an_object_is_an_object(daemon: Daemon) -> None:
    said = daemon.text(QUESTION, response_format={"type": "json_object"}, max_tokens=5)
    assert said.lstrip().startswith("{")


def test_a_grammar_that_grows_without_end_ends_alone(daemon: Daemon) -> None:
    ambiguous = {"ebnf": 'root ::= root root | root root root | "a" | ""'}
    fields: dict[str, Any] = {"guided_decoding": ambiguous, "max_tokens": 400, "logit_bias": {"2": -100}}
    with ThreadPoolExecutor(1) as pool:
        neighbour = pool.submit(daemon.chat, "Count to a hundred.", max_tokens=60, logit_bias={"2": -100})
        whole = daemon.chat(QUESTION, **fields)
        assert (whole.status_code, whole.json()["error"]["code"]) == (400, "guide_limit_exceeded")
        assert whole.json()["error"]["param"] == "guided_decoding.ebnf"
        assert neighbour.result().json()["usage"]["completion_tokens"] == 60


def test_choices_and_expressions_are_enforced_in_a_stream_too(daemon: Daemon) -> None:
    assert daemon.text(QUESTION, guided_decoding={"choice": ["red", "blue"]}, max_tokens=20) in ("red", "blue")
    answer = daemon.chat(QUESTION, guided_decoding={"regex": "[0-9]{3}-[a-f]{2}"}, max_tokens=20, stream=True)
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n")[:-2]]
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert re.fullmatch("[0-9]{3}-[a-f]{2}", text)


def test_guided_and_free_requests_run_side_by_side(daemon: Daemon) -> None:
    body = {"n": 3, "temperature": 1.0, "seed": 1, "max_tokens": 20}
    answer = daemon.chat(QUESTION, guided_decoding={"choice": ["red", "blue", "green"]}, **body).json()
    assert {choice["message"]["content"] for choice in answer["choices"]} <= {"red", "blue", "green"}


DEEP: dict[str, Any] = {"type": "object"}
for _ in range(80):
    DEEP = {"type": "array", "items": DEEP}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_decoding": {"regex": "("}}, "guided_decoding"),
        ({"guided_decoding": {"ebnf": "root ::= missing"}}, "guided_decoding"),
        ({"guided_decoding": {"json_schema": "{not json"}}, "guided_decoding"),
        ({"guided_decoding": {"json_schema": DEEP}}, "guided_decoding"),
        ({"guided_decoding": {"regex": "a" * 200_000}}, "guided_decoding"),
        ({"guided_decoding": {"choice": ["a"], "regex": "a"}}, "guided_decoding"),
        ({"guided_decoding": {"poem": True}}, "guided_decoding"),
        ({"response_format": as_format({"$ref": "#/nowhere"})}, "response_format"),
        ({"response_format": as_format({"type": "object", "properties": {"x": {"type": "poem"}}})}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
    ],
    ids=lambda value: str(value)[:50],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_enforced_is_a_400_and_the_process_goes_on(
    daemon: Daemon, fields: dict[str, Any], param: str, stream: bool
) -> None:
    answer = daemon.chat(QUESTION, stream=stream, **fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["code"] in ("invalid_schema", "invalid_value", "unknown_parameter")
    assert error["param"].startswith(param)
    assert daemon.process.poll() is None
    assert daemon.is_idle()
    daemon.still_serves()


def test_the_clients_own_parsing_works(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": QUESTION}],
        response_format=as_format(PERSON),  # type: ignore[arg-type]
        temperature=0,
        max_tokens=80,
    )
    assert set(json.loads(answer.choices[0].message.content or "")) == {"name", "age"}
