"""POST /v1/embeddings: checked like every request, then refused by name, since no lane hands embeddings out."""

from __future__ import annotations

from typing import NoReturn

from starlette.requests import Request

from edgellm.api.service import ApiService
from edgellm.api.wire.embeddings import EmbeddingsRequest
from edgellm.errors import UnsupportedParameterError


async def embeddings(service: ApiService, request: Request) -> NoReturn:
    body = await service.read(request, EmbeddingsRequest)
    service.engine.model(body.model).require_capabilities()
    raise UnsupportedParameterError("model: this model makes no embeddings.", param="model")
