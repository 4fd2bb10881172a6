"""GenerationResponse: runs a job for one HTTP client and sends what comes, as a stream or whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgellm.api.client_presence import ClientPresence
from edgellm.api.error_mapping import stream_error
from edgellm.api.sampling import as_asked
from edgellm.api.stream_format import DONE, HEARTBEAT, StreamFormat, StreamHead, event
from edgellm.api.usage import Usage
from edgellm.api.whole_format import Choice
from edgellm.errors import EdgeLLMError, RequestError
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import CancelCause, Generation

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """How an answer is put on the wire. ``stream`` is None for a whole answer."""

    head: StreamHead
    stream: StreamFormat | None
    with_usage: bool
    whole_choices: Callable[[Sequence[Choice]], list[dict[str, Any]]]
    by_response_format: bool = False


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
            try:
                generation = await presence.unless_gone(self._engine.generate(self._job))
            except RequestError as error:
                raise as_asked(error, by_response_format=self._shape.by_response_format) from None
            presence.on_leave(lambda: generation.cancel(CancelCause.CLIENT_LEFT))
            try:
                if self._shape.stream is None:
                    await self._send_whole(generation, presence, send)
                else:
                    await self._send_stream(generation, self._shape.stream, presence, send)
            finally:
                generation.cancel(CancelCause.CLIENT_LEFT)

    async def _send_whole(self, generation: Generation, presence: ClientPresence, send: Send) -> None:
        choices = [Choice() for _ in range(self._choices)]
        usage = Usage(self._job.choices)
        try:
            while deltas := await generation.next_deltas():
                for item in deltas:
                    choices[item.index].take(item.delta)
                    usage.take(item)
        except EdgeLLMError:
            if presence.gone:
                return
            raise
        answer = {
            **self._shape.head.as_object(),
            "choices": self._shape.whole_choices(choices),
            "usage": usage.as_object(),
        }
        body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send_stream(
        self, generation: Generation, stream: StreamFormat, presence: ClientPresence, send: Send
    ) -> None:
        kind = (b"x-edgellm-streaming", generation.capabilities.streaming.encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*_STREAM_HEADERS, kind]})
        usage = Usage(self._job.choices)
        try:
            deltas = await self._first_deltas(generation, send)
            while deltas:
                for item in deltas:
                    usage.take(item)
                events = "".join([stream.delta(item.index, item.delta) for item in deltas])
                if events:
                    await send({"type": "http.response.body", "body": events.encode(), "more_body": True})
                deltas = await generation.next_deltas()
        except EdgeLLMError as error:
            if presence.gone:
                return
            ending = event(stream_error(error))
        else:
            ending = (stream.usage(usage.as_object()) if self._shape.with_usage else b"") + DONE
        await send({"type": "http.response.body", "body": ending, "more_body": False})

    async def _first_deltas(self, generation: Generation, send: Send) -> Any:
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_seconds):
                    return await generation.next_deltas()
            except TimeoutError:
                await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
