"""POST /v1/audio/speech and GET /v1/voices: what is refused by name, how sound is sent, and how it ends."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api.asgi_client import Answer, AsgiClient, application, run
from tests.unit.serving.scripted_lane import ScriptedGeneration, ScriptedLane, spec_of, until

from edgellm.api.gate import BrokenAnswerError
from edgellm.api.settings import ApiSettings
from edgellm.errors import RequestError, WorkerFailedError
from edgellm.runtime.capabilities import Speech, Voice
from edgellm.runtime.generation import SpeechPrompt
from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.record_file import RecordFileSettings
from edgellm.serving.records import RecordSettings

VOICES = Speech((Voice("joe", "en_US"), Voice("ann")))
PIECES = (b"\x01\x02", b"\x03\x04\x05\x06")


def say_pieces(generation: ScriptedGeneration) -> None:
    for piece in PIECES:
        generation.give(StreamDelta(audio_bytes=piece, audio_frames=2))
    finish(generation)


def finish(generation: ScriptedGeneration) -> None:
    generation.give(StreamDelta(audio_bytes=b"\x07", finished=True, finish_reason="stop", prompt_tokens=9))


@asynccontextmanager
async def speaker(
    script: Callable[[ScriptedGeneration], None] | None = say_pieces, **further: Any
) -> AsyncIterator[tuple[AsgiClient, EngineClient, ScriptedLane]]:
    lane = ScriptedLane(script, speech=VOICES, output_modalities=("audio",))
    specs = [spec_of(ScriptedLane(), name="tiny"), spec_of(lane, name="voice", kind="tts")]
    async with application(specs=specs, **further) as (client, engine):
        lane.generations.clear()  # that of the warm-up
        yield client, engine, lane


async def spoken(client: AsgiClient, **fields: Any) -> Answer:
    return await client.post("/v1/audio/speech", {"model": "voice", "input": "Hi.", "voice": "joe", **fields})


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"model": "other"}, 404, "model_not_found", "model"),
        ({"model": "tiny"}, 400, "unsupported_parameter", "model"),
        ({"input": ""}, 400, "invalid_value", "input"),
        ({"input": " \n\t"}, 400, "invalid_value", "input"),
        ({"input": "x" * 4097}, 400, "invalid_value", "input"),
        ({"input": None}, 400, "invalid_value", "input"),
        ({"input": ["Hi."]}, 400, "invalid_value", "input"),
        ({"voice": "alloy"}, 400, "invalid_value", "voice"),
        ({"voice": {"id": "alloy"}}, 400, "invalid_value", "voice"),
        ({"voice": {"name": "joe"}}, 400, "invalid_value", "voice"),
        ({"voice": 1}, 400, "invalid_value", "voice"),
        ({"response_format": "ogg"}, 400, "invalid_value", "response_format"),
        ({"speed": 0.24}, 400, "invalid_value", "speed"),
        ({"speed": 4.01}, 400, "invalid_value", "speed"),
        ({"speed": "1"}, 400, "invalid_value", "speed"),
        ({"stream_format": "wav"}, 400, "invalid_value", "stream_format"),
        ({"instructions": "Whisper."}, 400, "unsupported_parameter", "instructions"),
        ({"nonsense": 1}, 400, "unknown_parameter", "nonsense"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, Any], status: int, code: str, param: str) -> None:
    async def scenario() -> None:
        async with speaker() as (client, _, lane):
            answer = await spoken(client, **fields)
            assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, param)
            assert lane.generations == []

    run(scenario())


def test_a_server_whose_models_make_text_alone_refuses_speech_by_name() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane()) as (client, _):
            answer = await client.post("/v1/audio/speech", {"model": "tiny", "input": "Hi.", "voice": "joe"})
            assert (answer.status, answer.error["param"]) == (400, "model")
            assert "does not speak" in answer.error["message"]
            assert (await client.get("/v1/voices")).json == {"object": "list", "data": []}

    run(scenario())


def test_a_voice_makes_no_text_and_no_transcripts() -> None:
    async def scenario() -> None:
        async with speaker() as (client, _, _):
            for path, body in (
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                ("/v1/completions", {"prompt": "x"}),
                ("/v1/embeddings", {"input": "x"}),
                ("/v1/responses", {"input": "x"}),
            ):
                answer = await client.post(path, {"model": "voice", **body})
                assert (answer.status, answer.error["param"]) == (400, "model")
                assert "speaks" in answer.error["message"]

    run(scenario())


@pytest.mark.parametrize(
    ("format_name", "media_type", "sample_format"),
    [
        ("mp3", "audio/mpeg", None),
        ("opus", "audio/ogg", None),
        ("aac", "audio/aac", None),
        ("flac", "audio/flac", None),
        ("wav", "audio/wav", "s16le"),
        ("pcm", "audio/pcm", "s16le"),
    ],
)
def test_sound_goes_out_as_it_comes_and_says_what_it_is(
    format_name: str, media_type: str, sample_format: str | None
) -> None:
    async def scenario() -> None:
        async with speaker(None) as (client, _, lane):
            body = {
                "model": "voice",
                "input": "Hi.",
                "voice": {"id": "ann"},
                "response_format": format_name,
                "speed": 2,
            }
            exchange = client.start_post("/v1/audio/speech", body)
            await until(lambda: bool(lane.generations))
            generation = lane.generations[0]
            assert generation.request.prompt == SpeechPrompt("Hi.", "ann", 2.0, format_name)  # type: ignore[arg-type]
            assert exchange.answer.status == 0
            for number, piece in enumerate(PIECES, 1):
                generation.give(StreamDelta(audio_bytes=piece, audio_frames=2))
                await until(lambda: exchange.answer.status == 200 and len(exchange.answer.pieces) == number)  # noqa: B023
            finish(generation)
            answer = await exchange.done()
            assert answer.complete
            assert answer.body == b"".join(PIECES) + b"\x07"
            assert answer.header("content-type") == media_type
            assert (answer.header("x-sample-rate"), answer.header("x-channels")) == ("24000", "1")
            assert answer.header("x-sample-format") == sample_format

    run(scenario())


def test_who_names_no_voice_and_no_format_gets_the_first_voice_as_mp3() -> None:
    async def scenario() -> None:
        async with speaker() as (client, _, lane):
            assert (await spoken(client, voice=None, instructions="")).status == 200
            assert lane.generations[0].request.prompt == SpeechPrompt("Hi.", "joe", 1.0, "mp3")

    run(scenario())


def test_events_carry_the_sound_and_end_with_counts() -> None:
    async def scenario() -> None:
        async with speaker() as (client, engine, _):
            answer = await spoken(client, stream_format="sse")
            *sounds, done = answer.events
            assert {event["type"] for event in sounds} == {"speech.audio.delta"}
            assert b"".join(base64.b64decode(event["audio"]) for event in sounds) == b"".join(PIECES) + b"\x07"
            usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
            assert done == {"type": "speech.audio.done", "usage": usage}
            assert engine.running_requests == 0

    run(scenario())


def test_what_the_lane_refuses_is_refused_before_200() -> None:
    async def scenario() -> None:
        async with speaker() as (client, _, lane):
            lane.refusal = RequestError("input holds nothing that this voice can say.", param="input")
            for stream_format in ("audio", "sse"):
                answer = await spoken(client, stream_format=stream_format)
                assert (answer.status, answer.error["param"]) == (400, "input")

    run(scenario())


def fail_after(pieces: int) -> Callable[[ScriptedGeneration], None]:
    def script(generation: ScriptedGeneration) -> None:
        for piece in PIECES[:pieces]:
            generation.give(StreamDelta(audio_bytes=piece, audio_frames=1))
        generation.fail(WorkerFailedError("The model's worker failed."))

    return script


def test_a_worker_that_fails_before_the_first_sound_is_an_error_and_later_an_end_without_an_end() -> None:
    async def scenario() -> None:
        async with speaker(fail_after(0)) as (client, _, _):
            answer = await spoken(client)
            assert (answer.status, answer.error["code"]) == (502, "worker_failed")
        async with speaker(fail_after(1)) as (client, _, lane):
            exchange = client.start_post("/v1/audio/speech", {"model": "voice", "input": "Hi.", "voice": "joe"})
            with pytest.raises(BrokenAnswerError):
                await exchange.done()
            assert (exchange.answer.status, exchange.answer.body) == (200, PIECES[0])
            assert not exchange.answer.complete
            assert len(lane.generations) == 1  # what was heard is not said again
            answer = await spoken(client, stream_format="sse")
            assert answer.events[-1]["error"]["code"] == "worker_failed"

    run(scenario())


def test_a_client_that_leaves_ends_the_synthesis() -> None:
    async def scenario() -> None:
        async with speaker(None) as (client, engine, lane):
            for stream_format in ("audio", "sse"):
                body = {"model": "voice", "input": "Hi.", "voice": "joe", "stream_format": stream_format}
                exchange = client.start_post("/v1/audio/speech", body)
                await until(lambda: bool(lane.generations))
                generation = lane.generations.pop()
                generation.give(StreamDelta(audio_bytes=PIECES[0], audio_frames=1))
                await until(lambda: bool(exchange.answer.pieces))  # noqa: B023
                exchange.leave()
                await until(lambda: generation.cancelled)  # noqa: B023
                await exchange.task
                await until(lambda: engine.running_requests == 0)

    run(scenario())


def test_a_silent_start_of_events_is_kept_alive() -> None:
    async def scenario() -> None:
        async with speaker(None, settings=ApiSettings(heartbeat_seconds=0.01)) as (client, _, lane):
            body = {"model": "voice", "input": "Hi.", "voice": "joe", "stream_format": "sse"}
            exchange = client.start_post("/v1/audio/speech", body)
            await until(lambda: any(piece.startswith(b":") for piece in exchange.answer.pieces))
            say_pieces(lane.generations[0])
            assert (await exchange.done()).events[-1]["type"] == "speech.audio.done"

    run(scenario())


def test_voices_are_listed_with_their_models_and_requests_are_counted_and_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "records.jsonl"
        records = RecordSettings(RecordFileSettings(file), include_text=True)
        async with speaker(records=records) as (client, _, _):
            voices = (await client.get("/v1/voices")).json["data"]
            assert voices == [
                {"id": "joe", "object": "voice", "model": "voice", "language": "en_US"},
                {"id": "ann", "object": "voice", "model": "voice", "language": ""},
            ]
            shown = (await client.get("/v1/models/voice")).json["edgellm"]
            assert (shown["kind"], shown["voices"]) == ("tts", ["joe", "ann"])
            assert (await spoken(client)).status == 200
            metrics = (await client.get("/metrics")).body.decode()
            assert 'edgellm_generated_tokens_total{model="voice"} 4.0' in metrics
            assert 'edgellm_prompt_tokens_total{model="voice"} 9.0' in metrics
        record = json.loads(file.read_text().splitlines()[-1])
        assert (record["route"], record["outcome"]) == ("/v1/audio/speech", "success")
        assert record["prompts"] == [{"text": "Hi.", "voice": "joe"}]

    run(scenario())
