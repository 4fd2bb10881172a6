"""Bodies made up from the OpenAPI document, right ones and wrong ones: each is understood or refused, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from edgellm.api.anthropic_prompt import anthropic_prompt
from edgellm.api.app import create_app
from edgellm.api.chat_prompt import chat_prompt
from edgellm.api.media_parts import MediaParts
from edgellm.api.response_prompt import conversation_of, response_prompt, tool_origins
from edgellm.api.wire.anthropic import CountTokensRequest, MessagesRequest
from edgellm.api.wire.chat import ChatRequest
from edgellm.api.wire.completion import CompletionRequest
from edgellm.api.wire.embeddings import EmbeddingsRequest
from edgellm.api.wire.fields import ParseContext, WireModel
from edgellm.api.wire.responses import ResponsesRequest
from edgellm.api.wire.speech import SpeechRequest
from edgellm.api.wire.validation import validated
from edgellm.errors import RequestError
from edgellm.serving.engine_client import EngineClient

schema = schemathesis.openapi.from_dict(create_app(EngineClient([])).openapi())


def _responses(body: Any) -> None:
    response_prompt(body, conversation_of(body, [{"role": "user", "content": "Hi"}]))
    tool_origins(body)


def _parts() -> MediaParts:
    return MediaParts(("text", "image", "audio", "video"))


BODIES: dict[str, tuple[type[WireModel], Callable[[Any], object]]] = {
    "/v1/chat/completions": (ChatRequest, lambda body: chat_prompt(body, _parts())),
    "/v1/completions": (CompletionRequest, id),
    "/v1/audio/speech": (SpeechRequest, id),
    "/v1/embeddings": (EmbeddingsRequest, id),
    "/v1/messages": (MessagesRequest, lambda body: anthropic_prompt(body, _parts())),
    "/v1/messages/count_tokens": (CountTokensRequest, lambda body: anthropic_prompt(body, _parts())),
    "/v1/responses": (ResponsesRequest, _responses),
}


MODES = pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
PATHS = pytest.mark.parametrize("path", BODIES)


def check(path: str, mode: GenerationMode, examples: int) -> None:
    model, goes_on = BODIES[path]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(schema[path]["POST"].as_strategy(generation_mode=mode), st.sampled_from(["refuse", "ignore"]))
    def is_understood_or_refused(case: Any, unknown_fields: Any) -> None:
        if isinstance(case.body, dict):  # the reader of bodies refuses others before
            with contextlib.suppress(RequestError):
                goes_on(validated(model, case.body, ParseContext(unknown_fields)))

    is_understood_or_refused()


@MODES
@PATHS
def test_a_body_is_understood_or_refused(path: str, mode: GenerationMode) -> None:
    check(path, mode, examples=15)


@pytest.mark.long
@MODES
@PATHS
def test_many_bodies_are_understood_or_refused(path: str, mode: GenerationMode) -> None:
    check(path, mode, examples=1000)


def test_every_json_body_of_the_document_is_among_them() -> None:
    document = create_app(EngineClient([])).openapi()
    taken = {
        path
        for path, methods in document["paths"].items()
        if "application/json" in methods.get("post", {}).get("requestBody", {}).get("content", {})
    }
    assert taken == set(BODIES)
