"""Streams on a connection of our server: a delta is on the wire before the event loop turns, and always in order."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.api.asgi_client import USER_MESSAGE, application, run
from tests.unit.api.memory_connection import MemoryTransport, connect
from tests.unit.serving.scripted_lane import ScriptedGeneration, ScriptedLane, settle, until

from edgellm.api.connection import BoundedHttpProtocol
from edgellm.api.settings import ApiSettings
from edgellm.parsing.output_style import OutputStyle
from edgellm.runtime.outputs import StreamDelta


def chat_request(**fields: Any) -> bytes:
    body = json.dumps({"messages": [USER_MESSAGE], "stream": True, **fields}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + b"X-Request-ID: same\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def events_in(written: bytes) -> list[Any]:
    """Of a chunked answer as far as it has come; chunk lengths are checked on the way."""
    rest = written.partition(b"\r\n\r\n")[2]
    body = b""
    while rest:
        length, _, rest = rest.partition(b"\r\n")
        size = int(length, 16)
        if size == 0:
            assert rest == b"\r\n"
            break
        assert rest[size : size + 2] == b"\r\n"
        body, rest = body + rest[:size], rest[size + 2 :]
    assert body == b"" or body.endswith(b"\n\n")
    lines = [line.removeprefix("data: ") for line in body.decode().split("\n\n")[:-1] if not line.startswith(":")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def text_in(written: bytes) -> str:
    events = [event for event in events_in(written) if event != "[DONE]"]
    return "".join(choice["delta"].get("content", "") for event in events for choice in event.get("choices", []))


@asynccontextmanager
async def streaming(
    **fields: Any,
) -> AsyncIterator[tuple[BoundedHttpProtocol, MemoryTransport, ScriptedGeneration]]:
    """A stream whose head is on the wire and whose reader waits."""
    lane = ScriptedLane()
    async with application(lane) as (client, engine):
        protocol, transport = connect(app=client.app)
        protocol.data_received(chat_request(**fields))
        await until(lambda: b"200 OK" in transport.written)
        await settle()
        yield protocol, transport, lane.generations[0]
        await until(lambda: engine.running_requests == 0)
        gate = engine.model("tiny").admission
        assert gate.running == gate.waiting == 0


def test_a_delta_is_written_inside_the_lanes_call() -> None:
    async def scenario() -> None:
        async with streaming() as (_, transport, generation):
            for text in ("a", "ü", "🙂"):
                before = transport.written
                generation.say(text)  # no turn of the loop in between
                assert text_in(b"\r\n\r\n" + transport.written[len(before) :]) == text
            before = transport.written
            generation.give(StreamDelta(token_ids=[1]))  # a token without text yet
            assert transport.written == before
            generation.finish()
            await until(lambda: b"[DONE]" in transport.written)
            assert transport.written.endswith(b"0\r\n\r\n")
            assert text_in(transport.written) == "aü🙂"
            assert not transport.closed

    run(scenario())


@pytest.mark.parametrize("fields", [{}, {"stream_options": {"include_usage": True}}, {"n": 2}], ids=str)
def test_the_events_are_those_of_any_other_server(fields: dict[str, Any]) -> None:
    def script(generation: ScriptedGeneration) -> None:
        for text in ("Hi", "", " there"):
            generation.say(text)
        generation.finish("length", cached_tokens=3)

    def without_time(events: list[Any]) -> list[Any]:
        return [event if event == "[DONE]" else {**event, "created": 0} for event in events]

    async def scenario() -> None:
        async with application(ScriptedLane(script)) as (client, _):
            answer = await client.chat(stream=True, headers=[("x-request-id", "same")], **fields)
        lane = ScriptedLane()
        async with application(lane) as (client, _):
            protocol, transport = connect(app=client.app)
            protocol.data_received(chat_request(**fields))
            await until(lambda: b"200 OK" in transport.written)
            for generation in lane.generations:
                script(generation)
            await until(lambda: b"[DONE]" in transport.written)
            transport.close()

        def by_choice(events: list[Any]) -> dict[int, str]:
            texts: dict[int, str] = {}
            for event in events[:-1]:
                for choice in event["choices"]:
                    texts[choice["index"]] = texts.get(choice["index"], "") + choice["delta"].get("content", "")
            return texts

        there, here = without_time(answer.events), without_time(events_in(transport.written))
        assert by_choice(here) == by_choice(there)
        assert here[-2:] == there[-2:]
        assert {frozenset(event) for event in here[:-1]} == {frozenset(event) for event in there[:-1]}

    run(scenario())


ANSWERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/v1/chat/completions": ({}, {"messages": [USER_MESSAGE], "stream_options": {"include_usage": True}}),
    "/v1/chat/completions?thinking": (
        {"output_style": OutputStyle(reasoning_parser="qwen3", shows_tools=True)},
        {"messages": [USER_MESSAGE]},
    ),
    "/v1/chat/completions?logprobs": ({}, {"messages": [USER_MESSAGE], "logprobs": True}),
    "/v1/completions": ({}, {"model": "tiny", "prompt": "Hi", "n": 2}),
    "/v1/messages": ({}, {"model": "tiny", "messages": [USER_MESSAGE], "max_tokens": 50}),
    "/v1/responses": ({}, {"model": "tiny", "input": "Hi"}),
}


@pytest.mark.parametrize("target", ANSWERS)
def test_events_made_of_text_alone_are_those_made_of_deltas(target: str) -> None:
    texts = ("<think>a", "b</think>", "\n", " Hi", ' "there"', "", "\n\t\x01", "ü🙂", "%s %d", "end")

    async def written(*, as_text: bool) -> bytes:
        changes, fields = ANSWERS[target]
        lane = ScriptedLane(**changes)
        async with application(lane) as (client, _):
            protocol, transport = connect(app=client.app)
            body = json.dumps({**fields, "stream": True}).encode()
            head = f"POST {target.partition('?')[0]} HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: same\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            protocol.data_received(head.encode() + body)
            await until(lambda: b"200 OK" in transport.written)
            await settle()
            for text in texts:
                for generation in lane.generations:
                    if as_text:
                        generation.say(text)
                    else:
                        generation.give(StreamDelta(text, [0]))
            for generation in lane.generations:
                generation.finish("length")
            await until(lambda: transport.written.endswith(b"0\r\n\r\n"))
            transport.close()
        body = transport.written.partition(b"\r\n\r\n")[2]
        return re.sub(rb'("created(?:_at)?"):\d+', rb"\1:0", body)

    async def scenario() -> None:
        assert await written(as_text=True) == await written(as_text=False)

    run(scenario())


def test_a_client_that_reads_slowly_gets_the_rest_merged_and_then_catches_up() -> None:
    async def scenario() -> None:
        async with streaming() as (protocol, transport, generation):
            generation.say("0 ")
            protocol.pause_writing()
            before = transport.written
            for number in range(1, 50):
                generation.say(f"{number} ")
                await settle(3)
            assert transport.written == before
            protocol.resume_writing()
            await until(lambda: text_in(transport.written).endswith("49 "))
            assert len(events_in(transport.written)) < 10
            await settle()
            before = transport.written
            generation.say("50 ")
            assert len(transport.written) > len(before)
            generation.finish()
            await until(lambda: b"[DONE]" in transport.written)
            assert text_in(transport.written) == "".join(f"{number} " for number in range(51))

    run(scenario())


def test_nothing_is_written_to_a_client_that_has_left_and_its_request_is_cancelled() -> None:
    async def scenario() -> None:
        async with streaming() as (_, transport, generation):
            generation.say("a")
            transport.close()
            await settle(1)
            before = transport.written
            generation.say("b")
            assert transport.written == before
            await until(lambda: generation.cancelled)

    run(scenario())


def test_a_pipelined_request_waits_for_the_end_of_the_stream() -> None:
    async def scenario() -> None:
        async with streaming() as (protocol, transport, generation):
            protocol.data_received(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await settle()
            generation.say("a")
            generation.say("b")
            assert text_in(transport.written) == "ab"
            generation.finish()
            await until(lambda: transport.written.endswith(b'{"status":"alive"}'))
            stream, _, answer = transport.written.partition(b"0\r\n\r\n")
            assert text_in(stream + b"0\r\n\r\n") == "ab"
            assert answer.startswith(b"HTTP/1.1 200 OK")

    run(scenario())


def test_a_delta_that_cannot_be_formatted_ends_its_stream_alone() -> None:
    async def scenario() -> None:
        async with streaming() as (_, transport, generation):
            generation.say("a")
            generation.give(StreamDelta(text=None, token_ids=[1], finished=False, logprobs=[[]]))  # type: ignore[arg-type]
            await until(lambda: transport.closed)
            assert generation.cancelled
            assert b"[DONE]" not in transport.written

    run(scenario())


def test_an_error_after_the_first_byte_is_the_last_event() -> None:
    async def scenario() -> None:
        async with streaming() as (_, transport, generation):
            generation.say("a")
            generation.finish("error")
            await until(lambda: transport.written.endswith(b"0\r\n\r\n"))
            *_, last = events_in(transport.written)
            assert last["error"]["code"] == "worker_failed"
            assert text_in(transport.written) == "a"

    run(scenario())


def test_heartbeats_end_with_the_first_delta_written_at_once() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane, settings=ApiSettings(heartbeat_seconds=0.02)) as (client, _):
            protocol, transport = connect(app=client.app)
            protocol.data_received(chat_request())
            await until(lambda: transport.written.count(b"\n: ") >= 2)
            lane.generations[0].say("a")
            beats = transport.written.count(b"\n: ")
            await asyncio.sleep(0.1)
            assert transport.written.count(b"\n: ") == beats
            lane.generations[0].say("b")
            lane.generations[0].finish()
            await until(lambda: b"[DONE]" in transport.written)
            assert text_in(transport.written) == "ab"
            transport.close()

    run(scenario())
