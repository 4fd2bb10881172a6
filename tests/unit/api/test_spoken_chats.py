"""Chats whose answers are said: how text and sound that came together are put on the wire."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.api.asgi_client import Answer, application, run
from tests.unit.serving.scripted_lane import ScriptedGeneration, ScriptedLane

from edgellm.parsing.output_style import OutputStyle
from edgellm.runtime.capabilities import Speech, Voice
from edgellm.runtime.generation import SpokenOutput
from edgellm.runtime.outputs import StreamDelta

SPOKEN = {"modalities": ["audio", "text"], "audio": {"voice": {"id": "ann"}, "format": "mp3"}}
VOICES = Speech((Voice("joe"), Voice("ann")))
Script = Callable[[ScriptedGeneration], None]


def all_at_once(generation: ScriptedGeneration) -> None:
    generation.give(
        StreamDelta(
            "Hello.", [1, 2], prompt_tokens=7, audio_bytes=b"abc", audio_frames=3, finished=True, finish_reason="length"
        )
    )


def with_reasoning(generation: ScriptedGeneration) -> None:
    generation.give(StreamDelta("<think>so</think>Hel", [1]))
    generation.give(StreamDelta("lo.", [2], audio_bytes=b"ab", audio_frames=1))
    generation.give(StreamDelta(audio_bytes=b"c", audio_frames=2, prompt_tokens=7, finished=True, finish_reason="stop"))


def asked(script: Script, **fields: Any) -> tuple[Answer, ScriptedLane]:
    lane = ScriptedLane(
        script,
        speech=VOICES,
        output_modalities=("text", "audio"),
        output_style=OutputStyle(reasoning_parser="qwen3"),
    )
    answers: list[Answer] = []

    async def scenario() -> None:
        async with application(lane) as (client, _):
            lane.script = script
            answers.append(await client.chat(**{"enable_thinking": True, **SPOKEN, **fields}))

    run(scenario())
    return answers[0], lane


@pytest.mark.parametrize(
    ("script", "reason", "reasoning"), [(all_at_once, "length", None), (with_reasoning, "stop", "so")]
)
def test_the_stream_ends_after_words_and_sound(script: Script, reason: str, reasoning: str | None) -> None:
    answer, _ = asked(script, stream=True, stream_options={"include_usage": True})
    *chunks, usage, done = answer.events
    assert done == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [delta.get("role") for delta in deltas] == ["assistant", *[None] * (len(deltas) - 1)]
    kinds = [next(iter(each.keys() - {"id"})) for delta in deltas if (each := delta.get("audio"))]
    assert kinds[-2:] == ["data", "expires_at"]
    audio = [delta["audio"] for delta in deltas if "audio" in delta]
    assert "".join(each.get("transcript", "") for each in audio) == "Hello."
    assert b"".join(base64.b64decode(each.get("data", "")) for each in audio) == b"abc"
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == (reasoning or "")
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [*[None] * (len(chunks) - 1), reason]
    assert usage["usage"]["prompt_tokens"] == 7
    assert usage["usage"]["completion_tokens_details"]["audio_tokens"] == 3


@pytest.mark.parametrize(
    ("script", "reason", "reasoning"), [(all_at_once, "length", None), (with_reasoning, "stop", "so")]
)
def test_the_whole_answer_says_the_same(script: Script, reason: str, reasoning: str | None) -> None:
    answer, lane = asked(script)
    (choice,) = answer.json["choices"]
    message = choice["message"]
    assert (message["content"], message.get("reasoning_content"), choice["finish_reason"]) == (None, reasoning, reason)
    assert (message["audio"]["transcript"], base64.b64decode(message["audio"]["data"])) == ("Hello.", b"abc")
    assert lane.generations[-1].request.spoken == SpokenOutput("ann", "mp3")


def test_each_choice_has_a_sound_of_its_own() -> None:
    answer, _ = asked(all_at_once, n=2)
    ids = [choice["message"]["audio"]["id"] for choice in answer.json["choices"]]
    assert len(set(ids)) == 2


def test_text_alone_is_asked_for_as_before() -> None:
    answer, lane = asked(all_at_once, modalities=["text"], audio=None)
    assert answer.json["choices"][0]["message"]["content"] == "Hello."
    assert lane.generations[-1].request.spoken is None
