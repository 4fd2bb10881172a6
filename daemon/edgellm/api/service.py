"""ApiService: what all routes work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from edgellm.api import limits
from edgellm.api.http_counters import HttpCounters
from edgellm.api.json_body import BodyReader, parse_json_object
from edgellm.api.media_body import DIVERTED_CHARACTERS_MIN
from edgellm.api.request_media import MediaLedger, RequestMedia
from edgellm.api.response_store import ResponseStore
from edgellm.api.settings import ApiSettings, LiveSettings
from edgellm.api.upload import UploadReader
from edgellm.api.wire.fields import ParseContext, WireModel
from edgellm.api.wire.validation import validated
from edgellm.errors import RequestError
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.priority import Priority
from edgellm.serving.task import Task

Model = TypeVar("Model", bound=WireModel)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as the gate found out."""

    client: str
    cache_domain: str
    request_id: str
    route: str
    priority: Priority | None  # of its key; None without keys

    def job(
        self,
        model: str,
        choices: int = 1,
        metadata: Mapping[str, str] | None = None,
        slots_max: int | None = None,
        asked_priority: str | None = None,
        task: Task = Task.TEXT,
    ) -> GenerationJob:
        """Of which only the prompts are still to come. Raises RequestError for a priority above that of its key."""
        return GenerationJob(
            model,
            (),
            self.request_id,
            self.client,
            choices,
            slots_max,
            route=self.route,
            priority=self._priority(asked_priority),
            metadata=metadata or {},
            task=task,
        )

    def _priority(self, asked: str | None) -> Priority:
        if asked is None:
            return self.priority or Priority.NORMAL
        priority = Priority(asked)
        if self.priority is not None and priority.is_above(self.priority):
            raise RequestError(f"priority: this key's requests are at most {self.priority.value}.", param="priority")
        return priority


@dataclass(frozen=True, slots=True)
class ApiService:
    engine: EngineClient
    live: LiveSettings
    counters: HttpCounters
    bodies: BodyReader
    responses: ResponseStore
    uploads: UploadReader
    media: MediaLedger
    takes_media: Callable[[], bool]

    @property
    def settings(self) -> ApiSettings:
        return self.live.now

    async def read(self, request: Request, model: type[Model]) -> Model:
        """The body as a wire model; RequestError or HttpError says what is wrong with it."""
        return await self._parsed(model, await self.bodies.read(request.receive))

    async def read_chat(self, request: Request, model: type[Model]) -> tuple[Model, RequestMedia]:
        """The same of a body that may bring media. Whoever gets them releases them."""
        media = RequestMedia(self.media, self.settings.body_bytes_max)
        with media.released_on_error():
            if not (self.takes_media() and _may_hold_long_strings(request)):
                return await self.read(request, model), media
            body = await media.read(request.receive, self.settings.body_deadline_seconds)
            return await self._parsed(model, body.text, body.restored), media

    async def _parsed(
        self,
        model: type[Model],
        body: bytes | bytearray,
        restored: Callable[[dict[str, object]], dict[str, object]] = lambda value: value,
    ) -> Model:
        context = ParseContext(self.settings.unknown_fields)

        def parse() -> Model:
            return validated(model, restored(parse_json_object(body)), context)

        try:
            # A large body takes long enough to be felt by the streams of others.
            return parse() if len(body) <= limits.INLINE_BODY_BYTES else await asyncio.to_thread(parse)
        finally:
            for _ in range(context.unknown):
                self.counters.unknown_field(self.settings.unknown_fields)


def _may_hold_long_strings(request: Request) -> bool:
    length = request.headers.get("content-length")
    return length is None or not length.isdigit() or int(length) > DIVERTED_CHARACTERS_MIN


def caller_of(request: Request) -> Caller:
    state = request.scope["state"]
    return Caller(state["client"], state["cache_domain"], state["request_id"], state["route"], state["priority"])
