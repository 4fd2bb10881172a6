"""ApiService: what all routes work with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from edgellm.api import limits
from edgellm.api.http_counters import HttpCounters
from edgellm.api.json_body import BodyReader, parse_json_object
from edgellm.api.response_store import ResponseStore
from edgellm.api.settings import ApiSettings
from edgellm.api.wire.fields import ParseContext, WireModel
from edgellm.api.wire.validation import validated
from edgellm.serving.engine_client import EngineClient, GenerationJob

Model = TypeVar("Model", bound=WireModel)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as the gate found out."""

    client: str
    cache_domain: str
    request_id: str
    route: str

    def job(
        self,
        model: str,
        choices: int = 1,
        metadata: object = None,
        slots_max: int | None = None,
    ) -> GenerationJob:
        """Of which only the prompts are still to come."""
        return GenerationJob(
            model,
            (),
            self.request_id,
            self.client,
            choices,
            slots_max,
            route=self.route,
            metadata=_kept_metadata(metadata),
        )


@dataclass(frozen=True, slots=True)
class ApiService:
    engine: EngineClient
    settings: ApiSettings
    counters: HttpCounters
    bodies: BodyReader
    responses: ResponseStore

    async def read(self, request: Request, model: type[Model]) -> Model:
        """The body as a wire model; RequestError or HttpError says what is wrong with it."""
        body = await self.bodies.read(request.receive)
        context = ParseContext(self.settings.unknown_fields)

        def parse() -> Model:
            return validated(model, parse_json_object(body), context)

        try:
            # A large body takes long enough to be felt by the streams of others.
            return parse() if len(body) <= limits.INLINE_BODY_BYTES else await asyncio.to_thread(parse)
        finally:
            for _ in range(context.unknown):
                self.counters.unknown_field(self.settings.unknown_fields)


def caller_of(request: Request) -> Caller:
    state = request.scope["state"]
    return Caller(state["client"], state["cache_domain"], state["request_id"], state["route"])


def _kept_metadata(metadata: object) -> Mapping[str, str]:
    """What goes into a record: short texts by short names, as the protocols have them; nothing of anything else."""
    if not isinstance(metadata, dict) or len(metadata) > limits.METADATA_ENTRIES_MAX:
        return {}
    is_short = all(
        isinstance(value, str)
        and len(name) <= limits.METADATA_KEY_CHARACTERS_MAX
        and len(value) <= limits.METADATA_VALUE_CHARACTERS_MAX
        for name, value in metadata.items()
    )
    return metadata if is_short else {}
