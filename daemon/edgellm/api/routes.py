"""The route table: every path that is served, by which methods, to whom. What is not here is denied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class Access(Enum):
    PUBLIC = "public"  # no key
    KEY = "key"  # a key, when there are any


class Body(Enum):
    NONE = "none"
    JSON = "json"
    FORM = "form"  # multipart, with a file


class Dialect(Enum):
    """Whose protocol a path belongs to: how its errors look."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class Route:
    """``path`` may end in one parameter in braces, which takes slashes. HEAD goes wherever GET does."""

    path: str
    method: str
    access: Access = Access.KEY
    body: Body = Body.NONE
    any_host: bool = False  # exempt from the Host and Origin checks
    brings_media: bool = False  # in its JSON, which may be larger for it
    generates: bool = False  # its requests are counted and recorded, also those refused before they reach a model
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fixed, brace, _ = self.path.partition("{")
        object.__setattr__(self, "pattern", re.compile(re.escape(fixed) + (".+" if brace else ""), re.DOTALL))


ROUTES: tuple[Route, ...] = (
    Route("/v1/chat/completions", "POST", body=Body.JSON, brings_media=True, generates=True),
    Route("/v1/completions", "POST", body=Body.JSON, generates=True),
    Route("/v1/embeddings", "POST", body=Body.JSON, generates=True),
    Route("/v1/audio/transcriptions", "POST", body=Body.FORM, generates=True),
    Route("/v1/audio/translations", "POST", body=Body.FORM, generates=True),
    Route("/v1/audio/speech", "POST", body=Body.JSON, generates=True),
    Route("/v1/voices", "GET"),
    Route("/v1/responses", "POST", body=Body.JSON, brings_media=True, generates=True),
    Route("/v1/responses/{response_id:path}", "GET"),
    Route("/v1/responses/{response_id:path}", "DELETE"),
    Route("/v1/messages", "POST", body=Body.JSON, brings_media=True, generates=True),
    Route("/v1/messages/count_tokens", "POST", body=Body.JSON, brings_media=True),
    Route("/v1/records/{request_id:path}", "GET"),
    Route("/v1/models", "GET"),
    Route("/v1/models/{model_id:path}", "GET"),
    Route("/health/live", "GET", Access.PUBLIC, any_host=True),
    Route("/health/ready", "GET", Access.PUBLIC, any_host=True),
    Route("/health", "GET", any_host=True),
    Route("/metrics", "GET"),
    Route("/openapi.json", "GET"),
    Route("/docs", "GET"),
    Route("/", "GET", Access.PUBLIC),
    Route("/pairing/hello", "POST", Access.PUBLIC, Body.JSON),
    Route("/pairing/claim", "POST", Access.PUBLIC, Body.JSON),
)


def routes_at(path: str, routes: Sequence[Route] = ROUTES) -> list[Route]:
    return [route for route in routes if route.pattern.fullmatch(path)]


def dialect_at(path: str) -> Dialect:
    """Also of a path where nothing is."""
    return Dialect.ANTHROPIC if path == "/v1/messages" or path.startswith("/v1/messages/") else Dialect.OPENAI
