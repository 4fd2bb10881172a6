"""POST /v1/embeddings: checked, and refused by name where the model makes none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.api.asgi_client import application, run
from tests.unit.serving.scripted_lane import ScriptedLane


@pytest.mark.parametrize("input", ["text", ["one", "two"], [1, 2, 3], [[1], [2, 3]]])
def test_every_form_of_input_is_understood_and_refused_by_name(input: Any) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane()) as (client, _):
            fields = {"encoding_format": "base64", "dimensions": 8, "user": "me"}
            answer = await client.post("/v1/embeddings", {"model": "tiny", "input": input, **fields})
            assert answer.status == 400
            assert (answer.error["code"], answer.error["param"]) == ("unsupported_parameter", "model")

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"input": []}, 400, "input"),
        ({"input": None}, 400, "input"),
        ({"encoding_format": "int8"}, 400, "encoding_format"),
        ({"dimensions": 0}, 400, "dimensions"),
        ({"nonsense": 1}, 400, "nonsense"),
    ],
)
def test_what_is_wrong_is_named_first(fields: dict[str, Any], status: int, param: str) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane()) as (client, _):
            answer = await client.post("/v1/embeddings", {"model": "tiny", "input": "text", **fields})
            assert (answer.status, answer.error["param"]) == (status, param)

    run(scenario())
