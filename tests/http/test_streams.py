"""Streams as bytes: headers, order, and only text that is final."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.http.daemon_process import Daemon


def stream_lines(daemon: Daemon, **fields: Any) -> tuple[httpx.Response, list[str]]:
    body = {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0, "max_tokens": 12, **fields}
    with httpx.stream("POST", f"{daemon.url}/v1/chat/completions", json=body, timeout=60) as answer:
        return answer, [line for line in answer.iter_lines() if line]


def test_a_stream_has_the_headers_and_the_order_of_the_policy(daemon: Daemon) -> None:
    answer, lines = stream_lines(daemon, stream=True, stream_options={"include_usage": True})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["x-edgellm-streaming"] == "incremental"
    assert answer.headers["x-request-id"]
    assert lines[-1] == "data: [DONE]"
    *chunks, usage = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] <= 12
    assert {chunk["id"] for chunk in chunks} == {f"chatcmpl-{answer.headers['x-request-id']}"}
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[0]["choices"][0]["delta"]["content"]
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"][0]["finish_reason"] in ("stop", "length")


def deltas(daemon: Daemon, content: str, **fields: Any) -> list[str]:
    _, lines = stream_lines(daemon, stream=True, messages=[{"role": "user", "content": content}], **fields)
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    return [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]


@pytest.mark.parametrize("seed", range(6))
def test_no_delta_splits_a_code_point(daemon: Daemon, seed: int) -> None:
    content = "Repeat exactly: 😀 日本語 naïve Привет 🇩🇪 👨‍👩‍👧 ελληνικά"
    sampling = {"temperature": 1.3, "seed": seed, "max_tokens": 40}
    pieces = deltas(daemon, content, **sampling)
    whole = daemon.text(content, **sampling)
    assert "".join(pieces) == whole


def test_characters_that_span_tokens_come_whole(daemon: Daemon) -> None:
    """A banned end token and a Unicode prompt make the model write characters of several tokens."""
    pieces = deltas(daemon, "日本語で答えてください。東京はどこですか。", max_tokens=48)
    assert any(ord(character) > 0x2E80 for character in "".join(pieces))
    assert "\ufffd" not in "".join(pieces)


def test_length_ends_a_stream_with_length(daemon: Daemon) -> None:
    _, lines = stream_lines(daemon, stream=True, max_tokens=1)
    assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"


UNENFORCEABLE = {"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}


def test_what_can_be_refused_is_refused_before_200(daemon: Daemon) -> None:
    for fields, status in (
        ({"messages": [{"role": "user", "content": "word " * 9000}]}, 400),
        ({"model": "other"}, 404),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]}, 400),
        (
            {
                "tool_choice": "required",
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}],
            },
            400,
        ),
        ({"guided_decoding": {"regex": "("}}, 400),
    ):
        answer, _ = stream_lines(daemon, stream=True, **fields)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/json"


def test_many_choices_stream_side_by_side(daemon: Daemon) -> None:
    fields: dict[str, Any] = {"n": 6, "seed": 3, "temperature": 1.0, "max_tokens": 10}
    _, lines = stream_lines(daemon, stream=True, **fields)
    texts = [""] * 6
    for line in lines[:-1]:
        for choice in json.loads(line.removeprefix("data: "))["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
    whole = daemon.chat(**fields).json()
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]
