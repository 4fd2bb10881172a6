"""POST /v1/embeddings: vectors in the form that was asked for, and a refusal by name where the model makes none."""

from __future__ import annotations

import asyncio
import base64
import struct
from typing import Any

import pytest
from tests.unit.api.asgi_client import Answer, application, run
from tests.unit.serving.scripted_lane import PROMPT_TOKENS, ScriptedGeneration, ScriptedLane, say_words

from edgellm.engines.embedding_output import EmbeddingOutput
from edgellm.errors import ContextLengthError
from edgellm.runtime.generation import TextPrompt
from edgellm.runtime.outputs import StreamDelta


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


VECTOR = (0.5, -0.5, 0.1, 0.7)


def embed(generation: ScriptedGeneration) -> None:
    """The vector is the text's own, so that a mix-up shows."""
    prompt = generation.request.prompt
    sign = -1 if isinstance(prompt, TextPrompt) and prompt.text == "two" else 1
    packed = struct.pack("<4f", *(sign * number for number in VECTOR))
    generation.give(StreamDelta(finished=True, finish_reason="stop", prompt_tokens=PROMPT_TOKENS, embedding=packed))


def embedder(**further: Any) -> ScriptedLane:
    return ScriptedLane(embed, embeddings=EmbeddingOutput(4, **further))


async def ask(lane: ScriptedLane, **fields: Any) -> Answer:
    async with application(lane) as (client, _):
        return await client.post("/v1/embeddings", {"model": "tiny", "input": "one", **fields})


@pytest.mark.parametrize(
    ("input", "signs"), [("one", [1]), (["one", "two"], [1, -1]), ([5, 6], [1]), ([[5], [6]], [1, 1])]
)
def test_each_input_gets_its_vector_in_order(input: Any, signs: list[int]) -> None:
    async def scenario() -> None:
        lane = embedder()
        answer = await ask(lane, input=input)
        assert answer.status == 200
        data = answer.json["data"]
        assert [(item["object"], item["index"]) for item in data] == [("embedding", i) for i in range(len(signs))]
        for item, sign in zip(data, signs, strict=True):
            assert item["embedding"] == pytest.approx([sign * number for number in VECTOR])
        tokens = PROMPT_TOKENS * len(signs)
        assert answer.json["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert (answer.json["object"], answer.json["model"]) == ("list", "tiny")
        assert all(generation.request.embedding for generation in lane.generations)

    run(scenario())


def test_a_list_of_any_length_that_openai_takes_goes_through_one_slot() -> None:
    async def scenario() -> None:
        lane = embedder()
        lane.script = lambda generation: asyncio.get_running_loop().call_soon(embed, generation)
        answer = await ask(lane, input=["two" if index % 3 else "one" for index in range(2048)])
        assert answer.status == 200
        data = answer.json["data"]
        assert [item["index"] for item in data] == list(range(2048))
        assert all((item["embedding"][0] < 0) == bool(item["index"] % 3) for item in data)
        assert lane.most_occupied == 1
        refused = await ask(embedder(), input=["x"] * 2049)
        assert (refused.status, refused.error["param"]) == (400, "input")
        assert "2048" in refused.error["message"]

    run(scenario())


def test_base64_holds_the_same_numbers() -> None:
    async def scenario() -> None:
        answer = await ask(embedder(), encoding_format="base64")
        packed = base64.b64decode(answer.json["data"][0]["embedding"])
        assert packed == struct.pack("<4f", *VECTOR)

    run(scenario())


def test_a_shorter_vector_is_the_beginning_at_length_one() -> None:
    async def scenario() -> None:
        answer = await ask(embedder(any_shorter=True), dimensions=2)
        assert answer.json["data"][0]["embedding"] == pytest.approx([2**-0.5, -(2**-0.5)])
        whole = await ask(embedder(), dimensions=4)
        assert whole.json["data"][0]["embedding"] == pytest.approx(VECTOR)

    run(scenario())


@pytest.mark.parametrize(
    ("further", "dimensions", "said"),
    [
        ({}, 2, "must be 4"),
        ({"shorter_sizes": (2,)}, 3, "must be 2 or 4"),
        ({"any_shorter": True}, 5, "must be 1 to 4"),
    ],
)
def test_a_size_that_the_model_was_not_trained_for_is_refused(
    further: dict[str, Any], dimensions: int, said: str
) -> None:
    async def scenario() -> None:
        answer = await ask(embedder(**further), dimensions=dimensions)
        assert (answer.status, answer.error["param"]) == (400, "dimensions")
        assert said in answer.error["message"]

    run(scenario())


def test_a_refusal_says_why_the_model_makes_none() -> None:
    async def scenario() -> None:
        answer = await ask(ScriptedLane(embeddings=EmbeddingOutput(refusal="its pooling is mean")))
        assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")
        assert "its pooling is mean" in answer.error["message"]

    run(scenario())


def test_an_input_that_is_too_long_is_named_as_the_client_named_it() -> None:
    async def scenario() -> None:
        lane = embedder()
        async with application(lane) as (client, _):
            lane.refusal = ContextLengthError("the prompt is too long", param="prompt")
            answer = await client.post("/v1/embeddings", {"model": "tiny", "input": "one"})
        assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
        assert answer.error["param"] == "input"

    run(scenario())


def test_a_lane_that_brings_no_vector_has_failed() -> None:
    async def scenario() -> None:
        answer = await ask(ScriptedLane(say_words(), embeddings=EmbeddingOutput(4)))
        assert (answer.status, answer.error["code"]) == (502, "worker_failed")

    run(scenario())
