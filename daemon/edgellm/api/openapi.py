"""The OpenAPI document, made from the route table and the models that the routes really use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import TypeAdapter

from edgellm.api.answers import (
    ChatCompletion,
    EmbeddingList,
    ErrorAnswer,
    ModelList,
    ModelObject,
    RequestRecord,
    TextCompletion,
    TranscriptAnswer,
    VoiceList,
)
from edgellm.api.anthropic_answers import AnthropicErrorAnswer, AnthropicMessage, TokenCount
from edgellm.api.response_answers import DeletedResponse, ResponseObject
from edgellm.api.routes import ROUTES, Access, Body, Dialect, Route, dialect_at
from edgellm.api.wire.anthropic import CountTokensRequest, MessagesRequest
from edgellm.api.wire.chat import ChatRequest
from edgellm.api.wire.completion import CompletionRequest
from edgellm.api.wire.embeddings import EmbeddingsRequest
from edgellm.api.wire.fields import WireModel
from edgellm.api.wire.responses import ResponsesRequest
from edgellm.api.wire.speech import SpeechRequest
from edgellm.api.wire.transcription import TranscriptionRequest, TranslationRequest
from edgellm.media.speech_formats import SPEECH_FORMATS

_REFERENCES = "#/components/schemas/{model}"
_SOUNDS = SPEECH_FORMATS.values()
_PARAMETER = re.compile(r"\{(\w+):path\}")


@dataclass(frozen=True, slots=True)
class _Operation:
    summary: str
    body: type[WireModel] | None = None
    answer: Any = None
    media_type: str = "application/json"
    streams: bool = False
    sound: bool = False


# By path, or by method and path where a path has several methods.
_OPERATIONS: dict[str, _Operation] = {
    "/v1/chat/completions": _Operation("Answer a conversation", ChatRequest, ChatCompletion, streams=True),
    "/v1/completions": _Operation("Continue text", CompletionRequest, TextCompletion, streams=True),
    "/v1/embeddings": _Operation("Embed text, with a model made for it", EmbeddingsRequest, EmbeddingList),
    "/v1/audio/transcriptions": _Operation("Write speech down", TranscriptionRequest, TranscriptAnswer, streams=True),
    "/v1/audio/translations": _Operation("Write speech down in English", TranslationRequest, TranscriptAnswer),
    "/v1/audio/speech": _Operation("Speak a text", SpeechRequest, streams=True, sound=True),
    "/v1/voices": _Operation("List the voices of the models that speak", answer=VoiceList),
    "/v1/messages": _Operation("Answer a conversation (Anthropic)", MessagesRequest, AnthropicMessage, streams=True),
    "/v1/messages/count_tokens": _Operation("Count a conversation's tokens", CountTokensRequest, TokenCount),
    "/v1/responses": _Operation("Answer items", ResponsesRequest, ResponseObject, streams=True),
    "/v1/responses/{response_id:path}": _Operation("Show a response that was kept", answer=ResponseObject),
    "DELETE /v1/responses/{response_id:path}": _Operation("Forget a response", answer=DeletedResponse),
    "/v1/records/{request_id:path}": _Operation("Show what became of one of your requests", answer=RequestRecord),
    "/v1/models": _Operation("List the models", answer=ModelList),
    "/v1/models/{model_id:path}": _Operation("Show a model", answer=ModelObject),
    "/health/live": _Operation("The process answers"),
    "/health/ready": _Operation("Every required model is ready; 503 names the stage"),
    "/health": _Operation("States and counters"),
    "/metrics": _Operation("Prometheus metrics", media_type="text/plain"),
    "/": _Operation("Status page", media_type="text/html"),
}


def describe(app: FastAPI) -> dict[str, Any]:
    """Made once and kept on the application, as FastAPI does."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app.title, app.version)
    return app.openapi_schema


def _document(title: str, version: str) -> dict[str, Any]:
    operations = [(route, operation) for route in ROUTES if (operation := _operation(route)) is not None]
    schemas = _Schemas([shape for route, operation in operations for shape in _shapes(route, operation)])
    paths: dict[str, Any] = {}
    for route, operation in operations:
        described = _described(route, operation, schemas)
        paths.setdefault(route.path.replace(":path", ""), {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas.definitions,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


class _Schemas:
    """Made of all shapes at once, so that two of the same name get names of their own."""

    def __init__(self, shapes: Sequence[Any]) -> None:
        adapters: list[tuple[Any, Literal["validation"], TypeAdapter[Any]]] = [
            (shape, "validation", TypeAdapter(shape)) for shape in dict.fromkeys(shapes)
        ]
        self._by_shape, definitions = TypeAdapter.json_schemas(adapters, ref_template=_REFERENCES)
        self.definitions: dict[str, Any] = dict(sorted(definitions["$defs"].items()))

    def of(self, shape: Any) -> dict[str, Any]:
        return {} if shape is None else self._by_shape[shape, "validation"]


def _operation(route: Route) -> _Operation | None:
    return _OPERATIONS.get(f"{route.method} {route.path}") or _OPERATIONS.get(route.path)


def _shapes(route: Route, operation: _Operation) -> list[Any]:
    return [shape for shape in (operation.body, operation.answer, _failure(route)) if shape is not None]


def _failure(route: Route) -> Any:
    return AnthropicErrorAnswer if dialect_at(route.path) is Dialect.ANTHROPIC else ErrorAnswer


def _form(operation: _Operation, schemas: _Schemas) -> dict[str, Any]:
    """The fields with the file among them."""
    fields = schemas.definitions[schemas.of(operation.body)["$ref"].rpartition("/")[2]]
    file = {"type": "string", "format": "binary"}
    return {
        **fields,
        "properties": {**fields["properties"], "file": file},
        "required": [*fields.get("required", ()), "file"],
    }


def _described(route: Route, operation: _Operation, schemas: _Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {operation.media_type: {"schema": schemas.of(operation.answer)}}
    if operation.sound:
        answer = {each.media_type: {"schema": {"type": "string", "format": "binary"}} for each in _SOUNDS}
    if operation.streams:
        answer["text/event-stream"] = {"schema": {}}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {
            "200": {"description": "OK", "content": answer},
            "default": {
                "description": "Refused or failed",
                "content": {"application/json": {"schema": schemas.of(_failure(route))}},
            },
        },
    }
    if route.access is Access.KEY:
        described["security"] = [{"bearer": []}, {"apiKey": []}]
    if route.body is Body.JSON and operation.body is not None:
        content = {"application/json": {"schema": schemas.of(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    if route.body is Body.FORM:
        described["requestBody"] = {
            "required": True,
            "content": {"multipart/form-data": {"schema": _form(operation, schemas)}},
        }
        answer["text/plain"] = {"schema": {"type": "string"}}
    if match := _PARAMETER.search(route.path):
        described["parameters"] = [{"name": match[1], "in": "path", "required": True, "schema": {"type": "string"}}]
    return described
