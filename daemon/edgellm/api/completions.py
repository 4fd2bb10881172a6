"""POST /v1/completions."""

from __future__ import annotations

import time

from starlette.requests import Request

from edgellm.api.generation_response import AnswerShape, GenerationResponse, PreparedAnswer
from edgellm.api.sampling import completion_sampling, guide_paths
from edgellm.api.service import ApiService, caller_of
from edgellm.api.stream_format import CompletionStreamFormat, StreamHead
from edgellm.api.whole_format import best_choices, completion_answer
from edgellm.api.wire.completion import CompletionRequest
from edgellm.errors import RequestError
from edgellm.runtime.generation import GenerationRequest, TextPrompt, TokenPrompt
from edgellm.serving.model import ServedModel


async def completions(service: ApiService, request: Request) -> GenerationResponse:
    body = await service.read(request, CompletionRequest)
    caller = caller_of(request)
    _check_best_of(body)

    def prepare(model: ServedModel) -> PreparedAnswer:
        params = completion_sampling(body, model.sampling, model.require_capabilities())
        prompts = [
            GenerationRequest(
                prompt=TextPrompt(prompt) if isinstance(prompt, str) else TokenPrompt(prompt),
                params=params,
                cache_domain=caller.cache_domain,
            )
            for prompt in body.prompt
        ]
        choices = len(prompts) * body.n
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        head = StreamHead(f"cmpl-{caller.request_id}", "text_completion", int(time.time()), model.name)
        shape = AnswerShape(
            stream=CompletionStreamFormat(head, choices, body.logprobs, with_usage) if body.stream else None,
            whole=lambda made, usage: completion_answer(
                head, body.logprobs, best_choices(made, body.sequences, body.n), usage
            ),
            as_asked=guide_paths(body).as_asked,
        )
        return PreparedAnswer(prompts, shape)

    job = caller.job(body.model, body.sequences, body.metadata, asked_priority=body.priority)
    return GenerationResponse(service.engine, job, prepare, service.settings.heartbeat_seconds)


def _check_best_of(body: CompletionRequest) -> None:
    if body.best_of is None or body.best_of == body.n:
        return
    if body.best_of < body.n:
        raise RequestError("best_of must be at least n.", param="best_of")
    if body.stream:
        raise RequestError("best_of: the best answers are known at the end only; do not stream them.", param="best_of")
