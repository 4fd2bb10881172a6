"""POST /v1/completions: prompts of every kind, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.api.asgi_client import application, run
from tests.unit.serving.scripted_lane import PROMPT_TOKENS, ScriptedGeneration, ScriptedLane, say_words

from edgellm.runtime.generation import TextPrompt, TokenPrompt
from edgellm.runtime.outputs import LogprobEntry, StreamDelta


def test_a_prompt_is_continued() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a", "b", reason="length"))) as (client, _):
            answer = await client.complete()
            assert answer.json["object"] == "text_completion"
            assert answer.json["id"].startswith("cmpl-")
            assert answer.json["choices"] == [{"index": 0, "text": "ab", "logprobs": None, "finish_reason": "length"}]

    run(scenario())


def test_a_stream_says_the_same() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a", "b"))) as (client, _):
            answer = await client.complete(stream=True, stream_options={"include_usage": True}, n=2)
            *chunks, usage, done = answer.events
            texts = ["", ""]
            reasons: list[Any] = [None, None]
            for chunk in chunks:
                for choice in chunk["choices"]:
                    texts[choice["index"]] += choice["text"]
                    reasons[choice["index"]] = choice["finish_reason"]
            assert (texts, reasons, done) == (["ab", "ab"], ["stop", "stop"], "[DONE]")
            assert usage["choices"] == []
            assert usage["usage"]["prompt_tokens"] == PROMPT_TOKENS

    run(scenario())


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("x", [TextPrompt("x")]),
        (["x", "y"], [TextPrompt("x"), TextPrompt("y")]),
        ([1, 2], [TokenPrompt([1, 2])]),
        ([[1, 2], [3]], [TokenPrompt([1, 2]), TokenPrompt([3])]),
    ],
    ids=str,
)
def test_prompts_come_as_text_or_token_ids_one_or_many(prompt: Any, prompts: list[Any]) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            answer = await client.complete(prompt=prompt, n=2)
            asked = [generation.request.prompt for generation in lane.generations]
            assert asked == [one for one in prompts for _ in range(2)]
            assert [choice["index"] for choice in answer.json["choices"]] == list(range(2 * len(prompts)))
            assert answer.json["usage"]["prompt_tokens"] == PROMPT_TOKENS * len(prompts)

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"model": None}, "invalid_value", "model"),
        ({"model": "other"}, "model_not_found", "model"),
        ({"prompt": None}, "invalid_value", "prompt"),
        ({"prompt": []}, "invalid_value", "prompt"),
        ({"prompt": [[]]}, "invalid_value", "prompt"),
        ({"prompt": [1, "x"]}, "invalid_value", "prompt"),
        ({"prompt": [True]}, "invalid_value", "prompt"),
        ({"prompt": [-1]}, "invalid_value", "prompt"),
        ({"prompt": {"text": "x"}}, "invalid_value", "prompt"),
        ({"prompt": ["x"] * 65}, "invalid_value", "prompt"),
        ({"prompt": ["x"] * 33, "n": 2}, "invalid_value", "prompt"),
        ({"prompt": ["x"] * 64, "n": 8}, "invalid_value", "prompt"),
        ({"suffix": "x"}, "unsupported_parameter", "suffix"),
        ({"echo": True}, "unsupported_parameter", "echo"),
        ({"logprobs": True}, "invalid_value", "logprobs"),
        ({"logprobs": 21}, "invalid_value", "logprobs"),
        ({"messages": []}, "unknown_parameter", "messages"),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], code: str, param: str) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            answer = await client.complete(**fields)
            assert answer.status == (404 if code == "model_not_found" else 400)
            assert (answer.error["code"], answer.error["param"]) == (code, param)

    run(scenario())


def test_neutral_fields_of_completions_pass() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            answer = await client.complete(suffix=None, echo=False, best_of=1, logprobs=False, user="me")
            assert answer.status == 200

    run(scenario())


def _entry(piece: bytes) -> LogprobEntry:
    return LogprobEntry(1, -0.5, piece.decode("utf-8", "replace"), piece)


def _say_with_logprobs(generation: ScriptedGeneration) -> None:
    for text, pieces in (("a ", [b"a "]), ("é", [b"\xc3", b"\xa9"]), ("b", [b"b"])):
        entries = [[_entry(piece), _entry(piece), _entry(b"x")] for piece in pieces]
        generation.give(StreamDelta(text=text, token_ids=[1] * len(pieces), logprobs=entries))
    generation.finish()


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_have_offsets_into_the_text(stream: bool) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(_say_with_logprobs)) as (client, _):
            answer = await client.complete(logprobs=2, stream=stream)
            chunks = [event for event in answer.events if event != "[DONE]"] if stream else [answer.json]
            parts = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
            joined = {name: [value for part in parts for value in part[name]] for name in parts[0]}
            assert joined["tokens"] == ["a ", "bytes:\\xc3", "bytes:\\xa9", "b"]
            assert joined["text_offset"] == [0, 2, 2, 3]
            assert joined["token_logprobs"] == [-0.5] * 4
            assert [len(top) for top in joined["top_logprobs"]] == [2] * 4

    run(scenario())


def _likely(logprob: float) -> Any:
    def script(generation: ScriptedGeneration) -> None:
        entry = LogprobEntry(1, logprob, "a", b"a")
        generation.give(StreamDelta(text=f"{logprob}", token_ids=[1], logprobs=[[entry]]))
        generation.finish()

    return script


def test_the_best_answers_are_those_that_were_likeliest() -> None:
    async def scenario() -> None:
        scripts = iter([_likely(value) for value in (-3.0, -1.0, -2.0, -0.5, -4.0, -0.1)])
        lane = ScriptedLane(lambda generation: next(scripts)(generation), max_batch_size=1)
        async with application(lane) as (client, _):
            answer = (await client.complete(prompt=["a", "b"], n=2, best_of=3)).json
            assert [choice["text"] for choice in answer["choices"]] == ["-1.0", "-2.0", "-0.1", "-0.5"]
            assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
            assert all(choice["logprobs"] is None for choice in answer["choices"])
            assert answer["usage"]["completion_tokens"] == 6
            assert answer["usage"]["prompt_tokens"] == 2 * PROMPT_TOKENS

    run(scenario())


@pytest.mark.parametrize(
    "fields", [{"best_of": 0}, {"best_of": 9}, {"n": 2, "best_of": 1}, {"best_of": 2, "stream": True}]
)
def test_best_of_is_bounded(fields: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            answer = await client.complete(**fields)
            assert (answer.status, answer.error["param"]) == (400, "best_of")
            crowd = await client.complete(prompt=["x"] * 9, best_of=8)
            assert (crowd.status, crowd.error["param"]) == (400, "prompt")
            assert (await client.complete(n=2, best_of=2, stream=True)).status == 200

    run(scenario())
