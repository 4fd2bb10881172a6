"""GenerationResponse: runs a job for one HTTP client and sends what comes, as a stream or whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgellm.api.body_writer import body_writer_of
from edgellm.api.client_presence import ClientPresence
from edgellm.api.event_stream import EventStream
from edgellm.api.failure_log import log_failure
from edgellm.api.gate import UNRECORDED
from edgellm.api.stream_format import StreamFormat
from edgellm.api.usage import Usage
from edgellm.api.whole_format import Choice
from edgellm.errors import EdgeLLMError, RequestError
from edgellm.parsing.answer_parser import AnswerFormat
from edgellm.serving.answer_events import ChoiceEvents
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import CancelCause, ChoiceDelta, Generation

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


AsAsked = Callable[[RequestError], RequestError]


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """How an answer is put on the wire.

    ``stream`` formats it as a stream and is None for a whole answer, which ``whole`` makes of the choices and the
    usage. ``answer_format`` says how the model writes reasoning and calls: with it the formats get answer events;
    None leaves the text as it is, and a stream gets the deltas themselves, at no cost. ``as_asked`` gives an error
    about the prompt or its guide the names that this protocol has for them.
    """

    stream: StreamFormat | None
    whole: Callable[[Sequence[Choice], dict[str, Any]], dict[str, Any]]
    answer_format: AnswerFormat | None = None
    as_asked: AsAsked = lambda error: error


class GenerationResponse(Response):
    """Status and headers are sent once the lane has accepted the job; what refuses it before is raised.

    A client that leaves, at any point, cancels the job.
    """

    def __init__(self, engine: EngineClient, job: GenerationJob, shape: AnswerShape, heartbeat_seconds: float) -> None:
        self._engine = engine
        self._job = job
        self._shape = shape
        self._heartbeat_seconds = heartbeat_seconds
        self._choices = len(job.prompts) * job.choices

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with ClientPresence(receive) as presence:
            scope["state"][UNRECORDED] = False
            try:
                generation = await presence.unless_gone(self._engine.generate(self._job))
            except RequestError as error:
                raise self._shape.as_asked(error) from None
            presence.on_leave(lambda: generation.cancel(CancelCause.CLIENT_LEFT))
            try:
                if self._shape.stream is None:
                    await self._send_whole(generation, presence, send)
                else:
                    await self._send_stream(generation, self._shape.stream, presence, scope, send)
            finally:
                generation.cancel(CancelCause.CLIENT_LEFT)

    async def _send_whole(self, generation: Generation, presence: ClientPresence, send: Send) -> None:
        choices = [Choice() for _ in range(self._choices)]
        parsers = self._parsers()
        usage = Usage(self._job.choices)
        try:
            while deltas := await generation.next_deltas():
                for item in deltas:
                    usage.take(item.index, item.delta)
                    if parsers is None:
                        choices[item.index].take(item.delta)
                    else:
                        choices[item.index].take_events(parsers[item.index].take(item.delta), item.delta.logprobs)
        except EdgeLLMError as error:
            if presence.gone:
                return
            if isinstance(error, RequestError):
                raise self._shape.as_asked(error) from None
            raise
        answer = self._shape.whole(choices, _counts(usage, parsers))
        body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send_stream(
        self, generation: Generation, stream: StreamFormat, presence: ClientPresence, scope: Scope, send: Send
    ) -> None:
        kind = (b"x-edgellm-streaming", generation.capabilities.streaming.encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*_STREAM_HEADERS, kind]})
        opening = stream.opening(generation.prompt_tokens)
        if opening:
            await send({"type": "http.response.body", "body": opening, "more_body": True})
        parsers = self._parsers()
        usage = Usage(self._job.choices)
        events = EventStream(stream, parsers, usage, body_writer_of(scope), self._heartbeat_seconds)
        try:
            while deltas := await self._next_deltas(generation, events, stream.heartbeat, send):
                body = events.bytes_of(deltas)
                if body:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        except EdgeLLMError as error:
            if presence.gone:
                return
            log_failure(self._job.request_id, error)
            ending = stream.failure(self._shape.as_asked(error) if isinstance(error, RequestError) else error)
        else:
            ending = stream.ending(_counts(usage, parsers))
        await send({"type": "http.response.body", "body": ending, "more_body": False})

    def _parsers(self) -> list[ChoiceEvents] | None:
        answer_format = self._shape.answer_format
        return None if answer_format is None else [ChoiceEvents(answer_format) for _ in range(self._choices)]

    async def _next_deltas(
        self, generation: Generation, events: EventStream, heartbeat: bytes, send: Send
    ) -> list[ChoiceDelta]:
        """Those that could not be written at once; none when the generation has ended."""
        while not events.begun:
            try:
                async with asyncio.timeout(self._heartbeat_seconds):
                    return await generation.next_deltas(events.write_at_once)
            except TimeoutError:
                if not events.begun:
                    await send({"type": "http.response.body", "body": heartbeat, "more_body": True})
        return await generation.next_deltas(events.write_at_once)


def _counts(usage: Usage, parsers: Sequence[ChoiceEvents] | None) -> dict[str, Any]:
    return usage.as_object(reasoning_tokens=sum(parser.reasoning_tokens for parser in parsers or ()))
