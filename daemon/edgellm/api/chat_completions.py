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
from edgellm.api.stream_format import ChatStreamFormat, StreamHead
from edgellm.api.whole_format import chat_answer
from edgellm.api.wire.chat import ChatRequest
from edgellm.errors import RequestError
from edgellm.runtime.generation import GenerationRequest
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model import ServedModel


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
        shape = AnswerShape(
            stream=ChatStreamFormat(head, body.n, top_logprobs, with_usage) if body.stream else None,
            whole=partial(chat_answer, head, top_logprobs),
            answer_format=plan.answer_format,
            as_asked=plan.guide_paths.as_asked,
        )
        prompt = GenerationRequest(prompt=plan.prompt, params=plan.params, cache_domain=caller.cache_domain)
        return PreparedAnswer([prompt], shape, parts.sources)

    with media.released_on_error():
        name = served_model_name(service.engine, body.model)
        job = caller.job(name, body.n, body.metadata, asked_priority=body.priority)
        return GenerationResponse(service.engine, job, prepare, service.settings.heartbeat_seconds, media)


def served_model_name(engine: EngineClient, asked: str | None) -> str:
    """The model that is meant: the one there is, when a request names none."""
    if asked is not None:
        return asked
    if len(engine.models) != 1:
        raise RequestError("model is required: several models are served.", param="model")
    return engine.models[0].name
