"""POST /v1/messages and POST /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from edgellm.api.anthropic_format import AnthropicStream, MessageHead, anthropic_answer
from edgellm.api.anthropic_prompt import anthropic_prompt
from edgellm.api.client_presence import ClientPresence
from edgellm.api.field_names import FieldNames
from edgellm.api.generation_response import AnswerShape, AsAsked, GenerationResponse, PreparedAnswer
from edgellm.api.media_parts import MediaParts
from edgellm.api.sampling import chat_sampling
from edgellm.api.service import ApiService, caller_of
from edgellm.api.wire.anthropic import CountTokensRequest, MessagesRequest, PromptFields
from edgellm.api.wire.chat import ChatRequest
from edgellm.api.wire.sampling import JsonSchemaFormat, ResponseFormat
from edgellm.errors import RequestError, UnsupportedParameterError
from edgellm.media.media_source import MediaSource
from edgellm.runtime.answer_plan import AnswerPlan
from edgellm.runtime.generation import GenerationRequest
from edgellm.serving.model import ServedModel

PROTOCOL_VERSIONS = ("2023-06-01", "2026-10-21")
"""They differ in what they refuse. Here temperature, top_p and top_k, which the newer one lacks, go with either."""

_SCHEMA = "output_config.format.schema"
_FIELDS = {
    "response_format.json_schema.schema": _SCHEMA,
    "guided_decoding.json_schema": _SCHEMA,
    "guided_decoding.structural_tag": _SCHEMA,
    "response_format": "output_config.format",
    "stop": "stop_sequences",
}
_MOST_EFFORT = "xhigh"


async def messages(service: ApiService, request: Request) -> GenerationResponse:
    _check_version(request)
    body, media = await service.read_chat(request, MessagesRequest)
    caller = caller_of(request)

    def prepare(model: ServedModel) -> PreparedAnswer:
        plan, as_asked, sources = _plan(model, body)
        shows_thinking = body.thinking is None or body.thinking.display != "omitted"
        head = MessageHead(caller.request_id, model.name, body.stop_sequences, shows_thinking)
        shape = AnswerShape(
            stream=AnthropicStream(head) if body.stream else None,
            whole=partial(anthropic_answer, head),
            answer_format=plan.answer_format,
            as_asked=as_asked,
        )
        prompt = GenerationRequest(prompt=plan.prompt, params=plan.params, cache_domain=caller.cache_domain)
        return PreparedAnswer([prompt], shape, sources)

    with media.released_on_error():
        job = caller.job(body.model, metadata=body.metadata.model_dump(exclude_none=True) if body.metadata else None)
        return GenerationResponse(service.engine, job, prepare, service.settings.heartbeat_seconds, media)


async def count_tokens(service: ApiService, request: Request) -> JSONResponse:
    """Takes no place of the model."""
    _check_version(request)
    body, media = await service.read_chat(request, CountTokensRequest)
    media.release()  # no part that brings some is counted
    names: list[AsAsked] = []

    def prompt(model: ServedModel) -> GenerationRequest:
        plan, as_asked, sources = _plan(model, body)
        names[:] = [as_asked]
        if sources:
            place = sources[0].place
            raise UnsupportedParameterError(
                f"{place}: tokens of images, videos and sounds are not counted; leave them out.", param=place
            )
        return GenerationRequest(prompt=plan.prompt, params=plan.params)

    async with ClientPresence(request.receive) as presence:
        try:
            tokens = await presence.unless_gone(service.engine.count_prompt_tokens(body.model, prompt))
        except RequestError as error:
            raise (names[0](error) if names else error) from None
    return JSONResponse({"input_tokens": tokens})


def _check_version(request: Request) -> None:
    """A client that says nothing speaks the latest."""
    versions = request.headers.getlist("anthropic-version")
    if any(version not in PROTOCOL_VERSIONS for version in versions):
        raise RequestError(
            f"anthropic-version must be one of {', '.join(PROTOCOL_VERSIONS)}.", param="anthropic-version"
        )


def _plan(model: ServedModel, body: PromptFields) -> tuple[AnswerPlan, AsAsked, Sequence[MediaSource]]:
    """What is to run, what gives an error about it the names of this protocol, and its media. Raises RequestError."""
    capabilities = model.require_capabilities()
    media = MediaParts(capabilities.input_modalities)
    prompt, origins = anthropic_prompt(body, media)
    tools = [f"tools[{index}]" for index in range(len(body.tools))]
    names = FieldNames(origins, tools, "messages", "input_schema", _FIELDS, own_places=media.places)
    try:
        params = chat_sampling(_as_chat(body), model.sampling, capabilities)
        plan = model.plan(prompt, params, guide_asked_as=_SCHEMA)
    except RequestError as error:
        raise names.rename(error) from None
    return plan, lambda error: names.rename(plan.guide_paths.as_asked(error)), media.sources


def _as_chat(body: PromptFields) -> ChatRequest:
    """The fields that both protocols have, as those of a chat request."""
    fields: dict[str, Any] = {}
    if isinstance(body, MessagesRequest):
        fields = {
            "max_tokens": body.max_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "top_k": body.top_k,
            "stop": body.stop_sequences,
            "stream": body.stream,
        }
    if body.thinking is not None:
        fields["enable_thinking"] = body.thinking.type != "disabled"
    output = body.output_config
    if output is not None and output.effort is not None:
        fields["reasoning_effort"] = _MOST_EFFORT if output.effort == "max" else output.effort
    if output is not None and output.format is not None:
        schema = JsonSchemaFormat.model_construct(schema_=output.format.schema_)
        fields["response_format"] = ResponseFormat(type="json_schema", json_schema=schema)
    return ChatRequest.model_construct(**fields)
