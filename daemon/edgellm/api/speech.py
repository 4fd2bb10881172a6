"""POST /v1/audio/speech and GET /v1/voices, for models that speak; others refuse them by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgellm.api import speech_format
from edgellm.api.client_presence import ClientPresence
from edgellm.api.delta_events import send_delta_events
from edgellm.api.gate import UNRECORDED
from edgellm.api.service import ApiService, caller_of
from edgellm.api.wire.speech import SpeechRequest
from edgellm.errors import EdgeLLMError
from edgellm.runtime.generation import GenerationRequest, SpeechPrompt
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.speech_front_end import check_speech_prompt, check_talker_speed, require_speech
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import CancelCause, Generation
from edgellm.serving.model import ServedModel
from edgellm.serving.task import Task


async def speech(service: ApiService, request: Request) -> SpeechResponse:
    body = await service.read(request, SpeechRequest)
    job = caller_of(request).job(body.model, task=Task.SPEECH)
    return SpeechResponse(service.engine, job, body, service.settings.heartbeat_seconds)


def list_voices(engine: EngineClient) -> dict[str, Any]:
    """The voices of every model that was open: those of others are not known yet."""
    return {
        "object": "list",
        "data": [
            {"id": voice.name, "object": "voice", "model": model.name, "language": voice.language}
            for model in engine.models
            if model.capabilities is not None
            for voice in model.capabilities.speech.voices
        ],
    }


class SpeechResponse(Response):
    """Runs one job and sends its sound as it is made. A client that leaves, at any point, ends the job.

    A failure that comes before the first sound is an ordinary error. One that comes later breaks the connection, so
    that nobody takes what came for all of it; among events it is an event.
    """

    def __init__(self, engine: EngineClient, job: GenerationJob, body: SpeechRequest, heartbeat_seconds: float) -> None:
        self._engine = engine
        self._job = replace(job, prompts=self._prompts)
        self._body = body
        self._heartbeat_seconds = heartbeat_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with ClientPresence(receive) as presence:
            scope["state"][UNRECORDED] = False
            generation = await presence.unless_gone(self._engine.generate(self._job))
            presence.on_leave(lambda: generation.cancel(CancelCause.CLIENT_LEFT))
            try:
                if self._body.stream_format == "sse":
                    events = speech_format.SpeechEvents()
                    await send_delta_events(generation, events, presence, send, self._heartbeat_seconds)
                else:
                    await self._send_sound(generation, presence, send)
            finally:
                generation.cancel(CancelCause.CLIENT_LEFT)

    def _prompts(self, model: ServedModel) -> Sequence[GenerationRequest]:
        capabilities = model.require_capabilities()
        require_speech(capabilities, "model")
        spoken = capabilities.speech
        voice = self._body.voice if self._body.voice is not None else spoken.default_voice
        prompt = SpeechPrompt(self._body.input, voice, self._body.speed, self._body.response_format)
        check_speech_prompt(prompt, spoken)
        if not capabilities.only_speaks:
            check_talker_speed(prompt.speed)
        return [GenerationRequest(prompt, SamplingParams())]

    async def _send_sound(self, generation: Generation, presence: ClientPresence, send: Send) -> None:
        has_begun = False
        try:
            async for delta in _deltas(generation):
                if not has_begun:
                    has_begun = True
                    headers = speech_format.sound_headers(self._body.response_format)
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                if delta.audio_bytes:
                    await send({"type": "http.response.body", "body": delta.audio_bytes, "more_body": True})
        except EdgeLLMError:
            if presence.gone:
                return
            raise
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _deltas(generation: Generation) -> AsyncIterator[StreamDelta]:
    while deltas := await generation.next_deltas():
        for item in deltas:
            yield item.delta
