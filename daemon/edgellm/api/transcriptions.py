"""POST /v1/audio/transcriptions and /v1/audio/translations, for models that hear; others refuse them by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgellm.api import transcript_format
from edgellm.api.client_presence import ClientPresence
from edgellm.api.delta_events import send_delta_events
from edgellm.api.gate import UNRECORDED
from edgellm.api.service import ApiService, caller_of
from edgellm.api.transcript_format import Transcript
from edgellm.api.upload import Form
from edgellm.api.wire.fields import ParseContext
from edgellm.api.wire.transcription import TranscriptionRequest, TranslationRequest
from edgellm.api.wire.validation import validated
from edgellm.errors import EdgeLLMError
from edgellm.runtime.audio_front_end import check_audio_prompt
from edgellm.runtime.generation import AudioPrompt, GenerationRequest
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import CancelCause, Generation
from edgellm.serving.model import ServedModel
from edgellm.serving.task import Task


async def transcriptions(service: ApiService, request: Request) -> TranscriptResponse:
    return await _answer(service, request, TranscriptionRequest)


async def translations(service: ApiService, request: Request) -> TranscriptResponse:
    return await _answer(service, request, TranslationRequest)


async def _answer(service: ApiService, request: Request, wire: type[TranslationRequest]) -> TranscriptResponse:
    form = await service.uploads.read(request, service.settings.body_deadline_seconds)
    try:
        context = ParseContext(service.settings.unknown_fields)
        try:
            body = validated(wire, form.fields, context)
        finally:
            for _ in range(context.unknown):
                service.counters.unknown_field(service.settings.unknown_fields)
        job = caller_of(request).job(body.model, task=Task.TRANSCRIPTION)
    except BaseException:
        form.release()
        raise
    return TranscriptResponse(service.engine, job, body, form, service.settings.heartbeat_seconds)


class TranscriptResponse(Response):
    """Runs one job and sends what comes, whole or as a stream. Releases the form's file when it is over."""

    def __init__(
        self,
        engine: EngineClient,
        job: GenerationJob,
        body: TranslationRequest,
        form: Form,
        heartbeat_seconds: float,
    ) -> None:
        self._engine = engine
        self._job = replace(job, prompts=self._prompts)
        self._body = body
        self._form = form
        self._heartbeat_seconds = heartbeat_seconds
        self._options = body if isinstance(body, TranscriptionRequest) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with ClientPresence(receive) as presence:
                scope["state"][UNRECORDED] = False
                generation = await presence.unless_gone(self._engine.generate(self._job))
                presence.on_leave(lambda: generation.cancel(CancelCause.CLIENT_LEFT))
                try:
                    if self._options is not None and self._options.stream:
                        events = transcript_format.TranscriptEvents()
                        await send_delta_events(generation, events, presence, send, self._heartbeat_seconds)
                    else:
                        await self._send_whole(generation, presence, send)
                finally:
                    generation.cancel(CancelCause.CLIENT_LEFT)
        finally:
            self._form.release()

    def _prompts(self, model: ServedModel) -> Sequence[GenerationRequest]:
        prompt = AudioPrompt(
            self._form.file,
            language=self._options.language if self._options else None,
            context=self._body.prompt,
            with_times=self._body.response_format not in ("json", "text"),
            with_words=self._options is not None and "word" in self._options.timestamp_granularities,
            translate=self._options is None,
        )
        check_audio_prompt(prompt, model.require_capabilities().transcription)
        return [GenerationRequest(prompt, SamplingParams(temperature=self._body.temperature))]

    async def _send_whole(self, generation: Generation, presence: ClientPresence, send: Send) -> None:
        transcript = Transcript()
        try:
            while deltas := await generation.next_deltas():
                for item in deltas:
                    transcript.take(item.delta)
        except EdgeLLMError:
            if presence.gone:
                return
            raise
        kind, body = transcript_format.whole(
            transcript,
            self._body.response_format,
            task="transcribe" if self._options else "translate",
            granularities=self._options.timestamp_granularities if self._options else ("segment",),
        )
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
