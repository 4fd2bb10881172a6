"""POST /v1/responses, and GET and DELETE of a response that was kept."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm.api.chat_completions import served_model_name
from edgellm.api.field_names import FieldNames
from edgellm.api.generation_response import AnswerShape, GenerationResponse, PreparedAnswer
from edgellm.api.request_media import RequestMedia
from edgellm.api.response_format import ResponseHead, ResponseStream, whole_response
from edgellm.api.response_prompt import Conversation, conversation_of, messages_of_output, response_prompt, tool_origins
from edgellm.api.response_store import ResponseStore
from edgellm.api.sampling import chat_sampling
from edgellm.api.service import ApiService, Caller, caller_of
from edgellm.api.wire.chat import ChatRequest
from edgellm.api.wire.responses import (
    ENCRYPTED_REASONING,
    TEXT_LOGPROBS,
    AllowedTools,
    FunctionTool,
    NamedTool,
    ResponsesRequest,
)
from edgellm.api.wire.sampling import JsonSchemaFormat, ResponseFormat
from edgellm.errors import RequestError, UnsupportedParameterError
from edgellm.media.media_input import MediaInput
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.model import ServedModel

_SCHEMA = "text.format.schema"
_FIELDS = {
    "response_format.json_schema.schema": _SCHEMA,
    "guided_decoding.json_schema": _SCHEMA,
    "guided_decoding.structural_tag": _SCHEMA,
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
}
_MESSAGE_FIELDS = {"tool_call_id": "call_id"}
_SAME_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "stream",
    "stream_options",
)


async def responses(service: ApiService, request: Request) -> GenerationResponse:
    body, media = await service.read_chat(request, ResponsesRequest)
    with media.released_on_error():
        return _response(service, caller_of(request), body, media)


def _response(service: ApiService, caller: Caller, body: ResponsesRequest, media: RequestMedia) -> GenerationResponse:
    name = served_model_name(service.engine, body.model)
    store = service.responses
    is_stored = _is_stored(body, store)
    conversation = conversation_of(body, *_history(body, store, caller))

    def prepare(model: ServedModel) -> PreparedAnswer:
        capabilities = model.require_capabilities()
        conversation.media.check(capabilities.input_modalities)
        prompt, origins = response_prompt(body, conversation)
        names = FieldNames(
            origins,
            tool_origins(body),
            "input",
            fields=_FIELDS,
            message_fields=_MESSAGE_FIELDS,
            own_places=conversation.media.places,
        )
        try:
            params = chat_sampling(_as_chat(body), model.sampling, capabilities)
            plan = model.plan(prompt, params, guide_asked_as=_SCHEMA)
        except RequestError as error:
            raise names.rename(error) from None
        head = ResponseHead(
            request_id=caller.request_id,
            created_at=int(time.time()),
            model=model.name,
            settings=_settings(body, params, is_stored),
            top_logprobs=(body.top_logprobs or 0) if TEXT_LOGPROBS in body.include else None,
            seals_reasoning=ENCRYPTED_REASONING in body.include,
        )
        on_end = partial(_keep, store, caller.client, conversation, media) if is_stored else _forget
        shape = AnswerShape(
            stream=ResponseStream(head, on_end) if body.stream else None,
            whole=partial(whole_response, head, on_end),
            answer_format=plan.answer_format,
            as_asked=lambda error: names.rename(plan.guide_paths.as_asked(error)),
        )
        generation = GenerationRequest(prompt=plan.prompt, params=plan.params, cache_domain=caller.cache_domain)
        return PreparedAnswer([generation], shape, conversation.media.sources)

    job = caller.job(name, metadata=body.metadata)
    return GenerationResponse(service.engine, job, prepare, service.settings.heartbeat_seconds, media)


async def stored_response(service: ApiService, request: Request) -> Response:
    if request.query_params.get("stream", "false").lower() not in ("false", "0"):
        raise UnsupportedParameterError("stream: a response that was kept is sent whole.", param="stream")
    entry = service.responses.get(caller_of(request).client, request.path_params["response_id"])
    return Response(entry.response, media_type="application/json")


async def delete_response(service: ApiService, request: Request) -> Response:
    response_id = request.path_params["response_id"]
    service.responses.delete(caller_of(request).client, response_id)
    return JSONResponse({"id": response_id, "object": "response", "deleted": True})


def _is_stored(body: ResponsesRequest, store: ResponseStore) -> bool:
    """Kept unless the client says otherwise, as the protocol has it; a server that keeps nothing says so."""
    if not store.is_on:
        for name in ("previous_response_id", "store"):
            if getattr(body, name):
                raise UnsupportedParameterError(f"{name}: this server keeps no responses.", param=name)
        return False
    return body.store is not False


def _history(
    body: ResponsesRequest, store: ResponseStore, caller: Caller
) -> tuple[list[dict[str, Any]], Sequence[MediaInput]]:
    if body.previous_response_id is None:
        return [], ()
    entry = store.get(caller.client, body.previous_response_id, param="previous_response_id")
    messages: list[dict[str, Any]] = json.loads(entry.messages)
    return messages, entry.media


def _keep(
    store: ResponseStore, client: str, conversation: Conversation, media: RequestMedia, response: dict[str, Any]
) -> None:
    messages = [*conversation.messages, *messages_of_output(response["output"])]
    store.put(client, response, messages, media.given)


def _forget(response: dict[str, Any]) -> None:
    """What is not to be kept is not."""


def _as_chat(body: ResponsesRequest) -> ChatRequest:
    """The fields that both protocols have, as those of a chat request."""
    fields: dict[str, Any] = {name: getattr(body, name) for name in _SAME_FIELDS}
    with_logprobs = TEXT_LOGPROBS in body.include
    if body.top_logprobs and not with_logprobs:
        raise RequestError(f'top_logprobs needs "{TEXT_LOGPROBS}" in include.', param="top_logprobs")
    effort = body.reasoning.effort if body.reasoning else None
    text_format = body.text.format if body.text else None
    response_format = None
    if text_format is not None and text_format.type != "text":
        schema = JsonSchemaFormat.model_construct(schema_=text_format.schema_)
        response_format = ResponseFormat.model_construct(type=text_format.type, json_schema=schema)
    return ChatRequest.model_construct(
        **fields,
        max_tokens=body.max_output_tokens,
        logprobs=with_logprobs,
        top_logprobs=body.top_logprobs if with_logprobs else None,
        enable_thinking=None if effort is None else effort != "none",
        reasoning_effort=effort,
        response_format=response_format,
    )


def _settings(body: ResponsesRequest, params: SamplingParams, is_stored: bool) -> dict[str, Any]:
    """The fields of a response that repeat what was asked, or say what holds where nothing was."""
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": is_stored,
        "temperature": params.temperature,
        "text": {"format": _shown_format(body), "verbosity": "medium"},
        "tool_choice": _shown_choice(body),
        "tools": [_shown_tool(tool) for tool in body.tools],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": "disabled",
        "user": body.user,
    }


def _shown_format(body: ResponsesRequest) -> dict[str, Any]:
    text_format = body.text.format if body.text else None
    if text_format is None or text_format.type != "json_schema":
        return {"type": text_format.type if text_format else "text"}
    return {"type": "json_schema", "name": text_format.name, "schema": text_format.schema_, "strict": True}


def _shown_choice(body: ResponsesRequest) -> Any:
    match body.tool_choice:
        case NamedTool(name=name):
            return {"type": "function", "name": name}
        case AllowedTools(mode=mode, tools=tools):
            named = [{"type": "function", "name": tool.name} for tool in tools]
            return {"type": "allowed_tools", "mode": mode, "tools": named}
        case mode:
            return mode


def _shown_tool(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }
