"""Server-sent events of which each delta of one generation makes at most one: speech and transcripts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Protocol

from starlette.types import Send

from edgellm.api.client_presence import ClientPresence
from edgellm.api.error_mapping import stream_error
from edgellm.api.failure_log import log_failure
from edgellm.api.generation_response import STREAM_HEADERS
from edgellm.errors import EdgeLLMError
from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.generation import Generation


class DeltaFormat(Protocol):
    """``heartbeat`` is a comment that keeps the connection from looking dead."""

    heartbeat: bytes

    def event(self, delta: StreamDelta) -> bytes:
        """Empty for a delta that the client is not told of."""
        ...

    def done(self) -> bytes: ...


def json_event(value: Mapping[str, object]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


async def send_delta_events(
    generation: Generation, form: DeltaFormat, presence: ClientPresence, send: Send, heartbeat_seconds: float
) -> None:
    """The whole answer, from its head on; a failure is its last event. To a client that is gone nothing is sent."""
    await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
    try:
        while True:
            try:
                async with asyncio.timeout(heartbeat_seconds):
                    deltas = await generation.next_deltas()
            except TimeoutError:
                await send({"type": "http.response.body", "body": form.heartbeat, "more_body": True})
                continue
            if not deltas:
                break
            for item in deltas:
                if event := form.event(item.delta):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
    except EdgeLLMError as error:
        if presence.gone:
            return
        log_failure(generation.report.request_id, error)
        ending = json_event(stream_error(error))
    else:
        ending = form.done()
    await send({"type": "http.response.body", "body": ending, "more_body": False})
