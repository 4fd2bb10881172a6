"""The body of POST /v1/embeddings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from edgellm.api import limits
from edgellm.api.wire.completion import text_or_token_prompts
from edgellm.api.wire.fields import WireModel
from edgellm.api.wire.sampling import Count, Identifier


def _inputs(value: object) -> list[str | list[int]]:
    return text_or_token_prompts(value, limits.INPUTS_MAX)


class EmbeddingsRequest(WireModel):
    model: str = Field(max_length=limits.NAME_CHARACTERS_MAX)
    input: Annotated[list[Any], BeforeValidator(_inputs, str | list[str] | list[int] | list[list[int]])]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None
    user: Identifier | None = None
