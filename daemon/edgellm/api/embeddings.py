"""POST /v1/embeddings, for models that were made for it; others refuse it by name."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from edgellm.api.generation_response import AnswerShape, GenerationResponse, PreparedAnswer
from edgellm.api.service import ApiService, caller_of
from edgellm.api.whole_format import Choice
from edgellm.api.wire.embeddings import EmbeddingsRequest
from edgellm.engines.embedding_output import EmbeddingOutput
from edgellm.errors import RequestError, UnsupportedParameterError, WorkerFailedError
from edgellm.runtime.generation import GenerationRequest, TextPrompt, TokenPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.model import ServedModel
from edgellm.serving.task import Task

_FLOAT_BYTES = 4


async def embeddings(service: ApiService, request: Request) -> GenerationResponse:
    body = await service.read(request, EmbeddingsRequest)
    caller = caller_of(request)

    def prepare(model: ServedModel) -> PreparedAnswer:
        output = model.require_capabilities().embeddings
        _check_output(output, body.dimensions)
        prompts = [
            GenerationRequest(
                prompt=TextPrompt(text) if isinstance(text, str) else TokenPrompt(text),
                params=SamplingParams(temperature=0, max_tokens=1),
                cache_domain=caller.cache_domain,
                embedding=True,
            )
            for text in body.input
        ]

        def whole(choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
            size = body.dimensions or output.size
            return embeddings_answer(model.name, [_vector(choice, size) for choice in choices], usage, body)

        return PreparedAnswer(prompts, AnswerShape(stream=None, whole=whole, as_asked=_as_asked))

    # One after another in one slot: a long list leaves the others to other requests.
    job = caller.job(body.model, slots_max=1, task=Task.EMBEDDINGS)
    return GenerationResponse(service.engine, job, prepare, service.settings.heartbeat_seconds)


def embeddings_answer(
    model: str, vectors: Sequence[bytes], usage: dict[str, Any], body: EmbeddingsRequest
) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector).decode()
                if body.encoding_format == "base64"
                else list(_numbers(vector)),
            }
            for index, vector in enumerate(vectors)
        ],
        "model": model,
        "usage": {"prompt_tokens": usage["prompt_tokens"], "total_tokens": usage["prompt_tokens"]},
    }


def _check_output(output: EmbeddingOutput, dimensions: int | None) -> None:
    if output.size == 0:
        reason = f": {output.refusal}" if output.refusal else ""
        raise UnsupportedParameterError(f"model: this model makes no embeddings{reason}.", param="model")
    if dimensions is None or output.allows(dimensions):
        return
    if output.any_shorter:
        takes = f"must be 1 to {output.size}"
    else:
        takes = f"must be {' or '.join(str(size) for size in (*output.shorter_sizes, output.size))}"
    raise RequestError(f"dimensions {takes} for this model.", param="dimensions")


def _vector(choice: Choice, size: int) -> bytes:
    """Cut to its first ``size`` numbers, at length one again."""
    vector = choice.embedding
    if vector is None or len(vector) < size * _FLOAT_BYTES:
        raise WorkerFailedError("The model's worker ended the request without a result.")
    if len(vector) == size * _FLOAT_BYTES:
        return vector
    numbers = _numbers(vector)[:size]
    length = math.sqrt(math.fsum(number * number for number in numbers))
    if length == 0:
        raise RequestError("dimensions: nothing is left of this vector at that size.", param="dimensions")
    return struct.pack(f"<{size}f", *(number / length for number in numbers))


def _numbers(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // _FLOAT_BYTES}f", vector)


def _as_asked(error: RequestError) -> RequestError:
    """What is a prompt below is an input here."""
    if error.param == "prompt":
        error.param = "input"
    return error
