"""The OpenAPI document, made from the route table and the models that the routes really use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter

from edgellm.api.answers import ChatCompletion, ErrorAnswer, ModelList, ModelObject, TextCompletion
from edgellm.api.anthropic_answers import AnthropicErrorAnswer, AnthropicMessage, TokenCount
from edgellm.api.routes import ROUTES, Access, Body, Dialect, Route, dialect_at
from edgellm.api.wire.anthropic import CountTokensRequest, MessagesRequest
from edgellm.api.wire.chat import ChatRequest
from edgellm.api.wire.completion import CompletionRequest
from edgellm.api.wire.fields import WireModel

_REFERENCES = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class _Operation:
    summary: str
    body: type[WireModel] | None = None
    answer: Any = None
    media_type: str = "application/json"
    streams: bool = False


_OPERATIONS: dict[str, _Operation] = {
    "/v1/chat/completions": _Operation("Answer a conversation", ChatRequest, ChatCompletion, streams=True),
    "/v1/completions": _Operation("Continue text", CompletionRequest, TextCompletion, streams=True),
    "/v1/messages": _Operation("Answer a conversation (Anthropic)", MessagesRequest, AnthropicMessage, streams=True),
    "/v1/messages/count_tokens": _Operation("Count a conversation's tokens", CountTokensRequest, TokenCount),
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
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        operation = _OPERATIONS.get(route.path)
        if operation is not None:
            paths.setdefault(route.path.replace(":path", ""), {})[route.method.lower()] = _described(
                route, operation, schemas
            )
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _described(route: Route, operation: _Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    failure = AnthropicErrorAnswer if dialect_at(route.path) is Dialect.ANTHROPIC else ErrorAnswer
    answer: dict[str, Any] = {operation.media_type: {"schema": _reference(operation.answer, schemas)}}
    if operation.streams:
        answer["text/event-stream"] = {"schema": {"type": "string"}}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {
            "200": {"description": "OK", "content": answer},
            "default": {
                "description": "Refused or failed",
                "content": {"application/json": {"schema": _reference(failure, schemas)}},
            },
        },
    }
    if route.access is Access.KEY:
        described["security"] = [{"bearer": []}, {"apiKey": []}]
    if route.body is Body.JSON and operation.body is not None:
        content = {"application/json": {"schema": _reference(operation.body, schemas)}}
        described["requestBody"] = {"required": True, "content": content}
    if "{model_id" in route.path:
        described["parameters"] = [{"name": "model_id", "in": "path", "required": True, "schema": {"type": "string"}}]
    return described


def _reference(shape: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if shape is None:
        return {}
    schema = TypeAdapter(shape).json_schema(ref_template=_REFERENCES)
    schemas.update(schema.pop("$defs", {}))
    schemas[shape.__name__] = schema
    return {"$ref": _REFERENCES.format(model=shape.__name__)}
