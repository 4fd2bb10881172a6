"""GenerationResponse: runs a job for one HTTP client and sends what comes, as a stream or whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgellm.api.body_writer import BodyWriter, body_writer_of
from edgellm.api.client_presence import ClientPresence
from edgellm.api.event_stream import EventStream
from edgellm.api.failure_log import log_failure
from edgellm.api.gate import UNRECORDED
from edgellm.api.request_media import RequestMedia
from edgellm.api.stream_format import StreamFormat
from edgellm.api.usage import Usage
from edgellm.api.whole_format import Choice
from edgellm.errors import EdgeLLMError, RequestError
from edgellm.media.media_source import MediaSource
from edgellm.parsing.answer_parser import AnswerFormat
from edgellm.runtime.generation import GenerationRequest
from edgellm.serving.answer_events import ChoiceEvents
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import CancelCause, ChoiceDelta, Generation
from edgellm.serving.model import ServedModel

STREAM_HEADERS = [
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


@dataclass(frozen=True, slots=True)
class PreparedAnswer:
    """What is to run, how its answer is put on the wire, and where its media are, which are all of one prompt."""

    prompts: Sequence[GenerationRequest]
    shape: AnswerShape
    sources: Sequence[MediaSource] = ()


Prepare = Callable[[ServedModel], PreparedAnswer]
"""Called once it is known what the model can do. Raises RequestError, with the names that its protocol has."""


class GenerationResponse(Response):
    """Status and headers are sent once the lane has accepted the job; what refuses it before is raised.

    ``prepare`` makes the job's prompts. A client that leaves, at any point, cancels the job. ``media`` is what the
    request brought, and is released when it is over.
    """

    def __init__(
        self,
        engine: EngineClient,
        job: GenerationJob,
        prepare: Prepare,
        heartbeat_seconds: float,
        media: RequestMedia | None = None,
    ) -> None:
        self._engine = engine
        self._job = job
        self._prepare = prepare
        self._heartbeat_seconds = heartbeat_seconds
        self._media = media

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        finally:
            if self._media is not None:
                self._media.release()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        prepared: list[PreparedAnswer] = []

        def prompts(model: ServedModel) -> Sequence[GenerationRequest]:
            prepared[:] = [self._prepare(model)]
            return prepared[0].prompts

        async def with_media(requests: Sequence[GenerationRequest]) -> Sequence[GenerationRequest]:
            sources = prepared[0].sources
            if not sources or self._media is None:
                return requests
            media = await self._media.inputs(sources)
            return [replace(request, media=media) for request in requests]

        job = replace(self._job, prompts=prompts, fetch=with_media)
        async with ClientPresence(receive) as presence:
            scope["state"][UNRECORDED] = False
            try:
                generation = await presence.unless_gone(self._engine.generate(job))
            except RequestError as error:
                raise (prepared[0].shape.as_asked(error) if prepared else error) from None
            presence.on_leave(lambda: generation.cancel(CancelCause.CLIENT_LEFT))
            shape = prepared[0].shape
            choices = self._job.choices
            answer = _Answer(generation, shape, choices, len(prepared[0].prompts) * choices)
            try:
                if shape.stream is None:
                    await answer.send_whole(presence, send)
                else:
                    body = body_writer_of(scope)
                    await answer.send_stream(shape.stream, presence, body, send, self._heartbeat_seconds)
            finally:
                generation.cancel(CancelCause.CLIENT_LEFT)


class _Answer:
    """A generation on its way to the client."""

    def __init__(self, generation: Generation, shape: AnswerShape, choices_of_prompt: int, choices: int) -> None:
        self._generation = generation
        self._shape = shape
        self._choices_of_prompt = choices_of_prompt
        self._choices = choices

    async def send_whole(self, presence: ClientPresence, send: Send) -> None:
        generation = self._generation
        choices = [Choice() for _ in range(self._choices)]
        parsers = self._parsers()
        usage = Usage(self._choices_of_prompt)
        try:
            while deltas := await generation.next_deltas():
                for item in deltas:
                    usage.take(item.index, item.delta)
                    choices[item.index].take_sound(item.delta)
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
        answer = self._shape.whole(choices, self._counts(usage, parsers))
        body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def send_stream(
        self,
        stream: StreamFormat,
        presence: ClientPresence,
        writer: BodyWriter | None,
        send: Send,
        heartbeat_seconds: float,
    ) -> None:
        generation = self._generation
        kind = (b"x-edgellm-streaming", generation.capabilities.streaming.encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, kind]})
        opening = stream.opening(generation.prompt_tokens)
        if opening:
            await send({"type": "http.response.body", "body": opening, "more_body": True})
        parsers = self._parsers()
        usage = Usage(self._choices_of_prompt)
        events = EventStream(stream, parsers, usage, writer, heartbeat_seconds)
        try:
            while deltas := await self._next_deltas(events, stream.heartbeat, heartbeat_seconds, send):
                body = events.bytes_of(deltas)
                if body:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        except EdgeLLMError as error:
            if presence.gone:
                return
            log_failure(generation.report.request_id, error)
            ending = stream.failure(self._shape.as_asked(error) if isinstance(error, RequestError) else error)
        else:
            ending = stream.ending(self._counts(usage, parsers))
        await send({"type": "http.response.body", "body": ending, "more_body": False})

    def _parsers(self) -> list[ChoiceEvents] | None:
        answer_format = self._shape.answer_format
        return None if answer_format is None else [ChoiceEvents(answer_format) for _ in range(self._choices)]

    def _counts(self, usage: Usage, parsers: Sequence[ChoiceEvents] | None) -> dict[str, Any]:
        reasoning_tokens = sum(parser.reasoning_tokens for parser in parsers or ())
        return usage.as_object(self._generation.report.generated_tokens, reasoning_tokens)

    async def _next_deltas(
        self, events: EventStream, heartbeat: bytes, heartbeat_seconds: float, send: Send
    ) -> list[ChoiceDelta]:
        """Those that could not be written at once; none when the generation has ended."""
        generation = self._generation
        while not events.begun:
            try:
                async with asyncio.timeout(heartbeat_seconds):
                    return await generation.next_deltas(events)
            except TimeoutError:
                if not events.begun:
                    await send({"type": "http.response.body", "body": heartbeat, "more_body": True})
        return await generation.next_deltas(events)
