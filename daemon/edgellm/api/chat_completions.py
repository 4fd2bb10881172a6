"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from functools import partial

from starlette.requests import Request

from edgellm.api.chat_prompt import chat_prompt
from edgellm.api.generation_response import AnswerShape, GenerationResponse, PreparedAnswer
from edgellm.api.media_parts import MediaParts
from edgellm.api.sampling import chat_sampling, guide_field, refuse_without_effect
from edgellm.api.service import ApiService, caller_of
from edgellm.api.spoken_format import SpokenStreamFormat, spoken_answer
from edgellm.api.stream_format import ChatStreamFormat, StreamHead
from edgellm.api.whole_format import chat_answer
from edgellm.api.wire.chat import ChatRequest
from edgellm.errors import RequestError
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import GenerationRequest, SpokenOutput
from edgellm.runtime.speech_front_end import check_spoken_output, require_speech
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model import ServedModel

_TALKER_FIELDS = (
    *("talker_temperature", "talker_top_k", "talker_top_p", "repetition_penalty"),
    *("max_audio_length", "codec_chunk_frames", "talker_prefill_threshold"),
)


async def chat_completions(service: ApiService, request: Request) -> GenerationResponse:
    body, media = await service.read_chat(request, ChatRequest)
    caller = caller_of(request)

    def prepare(model: ServedModel) -> PreparedAnswer:
        capabilities = model.require_capabilities()
        refuse_without_effect(body, capabilities)
        params = chat_sampling(body, model.sampling, capabilities)
        parts = MediaParts(capabilities.input_modalities)
        plan = model.plan(chat_prompt(body, parts), params, guide_asked_as=guide_field(body))
        top_logprobs = (body.top_logprobs or 0) if body.logprobs else None
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        kind = "chat.completion.chunk" if body.stream else "chat.completion"
        head = StreamHead(f"chatcmpl-{caller.request_id}", kind, int(time.time()), model.name)
        spoken = spoken_output(body, capabilities)
        stream = ChatStreamFormat(head, body.n, top_logprobs, with_usage)
        whole = partial(chat_answer, head, top_logprobs)
        if spoken is not None:
            stream, whole = SpokenStreamFormat(head, body.n, with_usage=with_usage), partial(spoken_answer, head)
        shape = AnswerShape(
            stream=stream if body.stream else None,
            whole=whole,
            answer_format=plan.answer_format,
            as_asked=plan.guide_paths.as_asked,
        )
        prompt = GenerationRequest(plan.prompt, plan.params, cache_domain=caller.cache_domain, spoken=spoken)
        return PreparedAnswer([prompt], shape, parts.sources)

    with media.released_on_error():
        name = served_model_name(service.engine, body.model)
        job = caller.job(name, body.n, body.metadata, asked_priority=body.priority)
        return GenerationResponse(service.engine, job, prepare, service.settings.heartbeat_seconds, media)


def spoken_output(body: ChatRequest, capabilities: Capabilities) -> SpokenOutput | None:
    """None for an answer of text alone. Raises RequestError for what the model does not say, or not so."""
    audio = body.audio
    if audio is None:
        return None
    require_speech(capabilities, "modalities")
    chosen = {name: value for name in _TALKER_FIELDS if (value := getattr(audio, name)) is not None}
    spoken = SpokenOutput(
        capabilities.speech.default_voice if audio.voice is None else audio.voice,
        "pcm" if audio.format == "pcm16" else audio.format,
        AudioParams(**chosen),
    )
    try:
        check_spoken_output(spoken, capabilities.speech)
    except RequestError as error:
        if error.param not in chosen:
            raise
        raise RequestError(f"audio.{error.message}", param=f"audio.{error.param}") from None
    return spoken


def served_model_name(engine: EngineClient, asked: str | None) -> str:
    """The model that is meant: the one there is, when a request names none."""
    if asked is not None:
        return asked
    if len(engine.models) != 1:
        raise RequestError("model is required: several models are served.", param="model")
    return engine.models[0].name
