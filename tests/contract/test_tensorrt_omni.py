"""An Omni model: built by the stand-in, loaded with what it speaks with, and asked in Python and over HTTP.

The board is described, and a scripted module is in the place of the one that needs a GPU.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.tensorrt_board import OnBoard, described, served
from tests.unit.api.asgi_client import USER_MESSAGE, Answer, run
from tests.unit.runtime.scripted_runtime import FinishReason, Script, ScriptedModule
from tests.unit.runtime.scripted_sound import AudioChunk, AudioStreamChannel, chunks
from tests.unit.serving.scripted_lane import until

from edgellm.errors import (
    ClosedError,
    GenerationError,
    RequestError,
    RuntimeUnavailableError,
    UnsupportedModalityError,
    WorkerFailedError,
)
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.generation import ChatPrompt, GenerationRequest, SpokenOutput
from edgellm.runtime.llm import LLM
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.worker.conversion import to_request, to_submit

SPOKEN = {"modalities": ["text", "audio"], "audio": {"voice": "vivian", "format": "pcm16"}}


@pytest.fixture
def module(on_board: OnBoard) -> ScriptedModule:
    scripted = ScriptedModule(extensions=False)
    scripted.script = lambda _: Script(("Good ", "morning."))
    scripted.speech = chunks(b"ab", b"", b"cd")
    on_board(scripted)
    return scripted


@pytest.fixture
def model(tmp_path: Path) -> str:
    return described(tmp_path / "omni", {"model_type": "qwen3_omni"})


@pytest.fixture
def llm(module: ScriptedModule, model: str, tmp_path: Path) -> Iterator[LLM]:
    with opened(model, tmp_path) as loaded:
        yield loaded


def opened(model: str, tmp_path: Path, **options: Any) -> LLM:
    lengths = {"max_input_len": 128, "max_kv_cache_capacity": 256, "max_batch_size": 1}
    return LLM(model, runtime="tensorrt", cache_dir=str(tmp_path / "cache"), **{**lengths, **options})


def said(deltas: list[StreamDelta]) -> tuple[str, bytes]:
    return "".join(delta.text for delta in deltas), b"".join(delta.audio_bytes or b"" for delta in deltas)


# Python


def test_what_it_speaks_with_is_loaded_into_its_runtime(module: ScriptedModule, llm: LLM, model: str) -> None:
    root = Path(llm.bundle_dir)
    parts = [str(root / name) for name in ("talker", "code_predictor", "code2wav")]
    assert list(module.runtimes[0].omni) == [*parts, str(root), model]
    assert llm.speech_available
    assert llm.list_voices() == ["eric", "vivian"]
    assert llm.capabilities.output_modalities == ("text", "audio")
    assert [voice.name for voice in llm.capabilities.speech.voices] == ["eric", "vivian"]
    llm.close()
    with pytest.raises(ClosedError):
        llm.list_voices()


def test_text_and_sound_are_deltas_of_their_own_each_in_its_order(module: ScriptedModule, llm: LLM) -> None:
    params = AudioParams(voice="vivian", talker_temperature=0.5, codec_chunk_frames=3)
    deltas = list(
        llm.generate_stream_with_audio(
            [USER_MESSAGE], SamplingParams(max_tokens=9, skip_special_tokens=False), audio_params=params
        )
    )
    assert said(deltas) == ("Good morning.", b"abcd")
    assert all(not (delta.text and delta.audio_bytes) for delta in deltas)
    assert [delta.finish_reason for delta in deltas if delta.finished] == ["stop"], "it ends the text"
    assert [delta.audio_bytes for delta in deltas if delta.audio_bytes is not None] == [b"ab", b"cd"]
    ((request, native),) = module.runtimes[0].spoken
    assert request is module.requests[0]
    assert (request.max_generate_length, request.skip_special_tokens) == (9, True)
    assert (native.speaker_name, native.talker_temperature, native.codec_chunk_frames) == ("vivian", 0.5, 3)
    list(llm.generate_stream_with_audio("hi"))
    assert module.runtimes[0].spoken[1][1].speaker_name == "eric", "the first one, of who names none"


def test_sound_that_comes_after_the_text_is_waited_for(module: ScriptedModule, llm: LLM) -> None:
    text_is_over = threading.Event()

    def late(channel: AudioStreamChannel) -> int:
        assert text_is_over.wait(20)
        channel.push(AudioChunk(b"ef"))
        return 1  # and no chunk says that it is the last

    module.speech = late
    kinds = []
    for delta in llm.generate_stream_with_audio("hi"):
        kinds.append("sound" if delta.audio_bytes else "end" if delta.finished else "text")
        if delta.finished:
            text_is_over.set()
    assert kinds == ["text", "text", "end", "sound"]


def test_a_text_is_said_without_an_answer(module: ScriptedModule, llm: LLM) -> None:
    deltas = list(llm.generate_speech_stream("Good evening.", AudioParams(voice="vivian")))
    assert said(deltas) == ("", b"abcd")
    assert [delta.finished for delta in deltas] == [False, False]
    ((text, native),) = module.runtimes[0].spoken
    assert (text, native.speaker_name, module.requests) == ("Good evening.", "vivian", [])


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"voice": "nobody"}, "audio.voice"),
        ({"speed": 2.0}, "speed"),
        ({"talker_top_p": 2.0}, "talker_top_p"),
        ({"max_audio_length": 0}, "max_audio_length"),
    ],
)
def test_what_it_cannot_say_is_a_value_error_at_the_call(
    module: ScriptedModule, llm: LLM, params: dict[str, Any], param: str
) -> None:
    for ask in (
        lambda: llm.generate_stream_with_audio("hi", audio_params=AudioParams(**params)),
        lambda: llm.generate_speech_stream("hi", AudioParams(**params)),
    ):
        with pytest.raises(ValueError) as refused:  # noqa: PT011  # as NVIDIA's: ours tell more
            ask()
        assert isinstance(refused.value, RequestError)
        assert refused.value.param == param
    with pytest.raises(ValueError, match="something to say"):
        llm.generate_speech_stream(" ")
    assert module.runtimes[0].spoken == []


def test_in_flight_batching_serves_text_and_says_so(
    module: ScriptedModule, model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(model, tmp_path, enable_in_flight_batching=True) as llm:
        assert "in-flight batching serves text only" in caplog.text
        assert (llm.speech_available, llm.list_voices(), module.runtimes) == (False, [], [])
        for ask in (lambda: llm.generate_stream_with_audio("hi"), lambda: llm.generate_speech_stream("hi")):
            with pytest.raises(UnsupportedModalityError, match="in-flight batching serves text only"):
                ask()
        assert llm.generate("hi")[0].text == "Good morning."


def test_a_model_of_text_refuses_at_the_call(module: ScriptedModule, tmp_path: Path) -> None:
    with opened(described(tmp_path / "text", {"model_type": "qwen3"}), tmp_path) as llm:
        assert (llm.speech_available, llm.list_voices()) == (False, [])
        for ask in (lambda: llm.generate_stream_with_audio("hi"), lambda: llm.generate_speech_stream("hi")):
            with pytest.raises(ValueError, match="the model text has no speech output"):
                ask()


def test_speech_that_does_not_load_says_why(
    module: ScriptedModule, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.LLMRuntime

    def without_speech(*positional: Any, **named: Any) -> Any:
        runtime = real(*positional, **named)

        def refuse(*_: Any) -> None:
            raise RuntimeError("talker engine: wrong version")

        monkeypatch.setattr(runtime, "load_omni", refuse)
        return runtime

    monkeypatch.setattr(module, "LLMRuntime", without_speech)
    with pytest.raises(RuntimeUnavailableError, match="talker engine: wrong version"):
        opened(model, tmp_path)


@pytest.mark.parametrize(
    ("text", "error"),
    [("CUDA out of memory while hi was said", GenerationError), ("failed worker: talker", WorkerFailedError)],
)
def test_a_failed_call_is_an_error_after_what_came_and_the_next_one_runs(
    module: ScriptedModule, llm: LLM, text: str, error: type[Exception]
) -> None:
    module.script = lambda _: Script(("Good",), terminal=False, error=RuntimeError(text))
    stream = llm.generate_stream_with_audio("hi")
    with pytest.raises(error) as failed:
        list(stream)
    assert "hi" not in str(failed.value).split()
    assert module.runtimes[0].active == 0
    module.script = lambda _: Script(("Good",))
    assert said(list(llm.generate_stream_with_audio("hi"))) == ("Good", b"abcd")
    assert llm.generate("hi")[0].text == "Good", "a request of text takes its turn"


def test_a_text_that_ends_without_a_word_is_an_error(module: ScriptedModule, llm: LLM) -> None:
    module.script = lambda _: Script(("Good",), terminal=False)
    *_, last = llm.generate_stream_with_audio("hi")
    assert (last.finished, last.finish_reason) == (True, "error")


@pytest.mark.parametrize("only_speech", [False, True])
def test_a_stream_that_is_closed_cancels_both_and_waits_for_the_call(
    module: ScriptedModule, llm: LLM, only_speech: bool
) -> None:
    def say(channel: AudioStreamChannel) -> int:
        channel.push(AudioChunk(b"ab"))
        channel.wait_until_cancelled()
        return 1

    module.speech = say
    module.script = lambda _: Script(("Good", " morning."), gate=threading.Event())
    stream = llm.generate_speech_stream("hi") if only_speech else llm.generate_stream_with_audio("hi")
    assert next(stream)
    assert module.runtimes[0].active == 1
    stream.close()
    assert module.runtimes[0].active == 0
    assert [thread.name for thread in threading.enumerate() if thread.name == "edgellm-generation"] == []
    module.speech = chunks(b"cd")
    assert said(list(llm.generate_speech_stream("again"))) == ("", b"cd"), "its place is free"


def test_speech_leaves_no_line_about_context_reuse_and_none_of_it_in_the_next(
    module: ScriptedModule, model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts = {"matched_tokens": 0, "hit_sequences": 0, "current_records": 1}
    module.cache_metrics.extend(
        SimpleNamespace(reused_tokens=reused, admitted_sequences=admitted, **counts)
        for reused, admitted in ((0, 0), (0, 0), (5, 1), (8, 2), (8, 2))
    )
    with opened(model, tmp_path, enable_context_reuse=True) as llm, caplog.at_level("INFO", "edgellm"):
        module.cache_metrics.popleft()
        list(llm.generate_stream_with_audio("hi"))
        assert "context reuse" not in caplog.text
        llm.generate("hi")
        assert "request reused_tokens=3" in caplog.text


def test_how_an_answer_is_said_travels_to_a_worker() -> None:
    spoken = SpokenOutput("vivian", "mp3", AudioParams(talker_top_k=3))
    request = GenerationRequest(ChatPrompt([USER_MESSAGE]), SamplingParams(), spoken=spoken)
    assert to_request(to_submit(1, request)).spoken == spoken


# HTTP


def asked(module: ScriptedModule, source: str, tmp_path: Path, path: str = "", **fields: Any) -> Answer:
    answers: list[Answer] = []

    async def scenario() -> None:
        async with served(lambda: opened(source, tmp_path)) as (client, _):
            if path:
                answers.append(await client.post(path, fields))
            else:
                answers.append(await client.chat(**fields))

    run(scenario())
    return answers[0]


def test_a_whole_answer_has_its_sound_and_its_transcript(module: ScriptedModule, model: str, tmp_path: Path) -> None:
    answer = asked(module, model, tmp_path, **SPOKEN).json
    (choice,) = answer["choices"]
    message = choice["message"]
    assert (message["content"], choice["finish_reason"]) == (None, "stop")
    audio = message["audio"]
    assert (base64.b64decode(audio["data"]), audio["transcript"]) == (b"abcd", "Good morning.")
    assert (audio["id"], audio["expires_at"]) == (
        f"audio-{answer['id'].removeprefix('chatcmpl-')}-0",
        answer["created"],
    )
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (7, 4)
    assert usage["completion_tokens_details"]["audio_tokens"] == 2
    assert module.runtimes[0].spoken[-1][1].speaker_name == "vivian"


def test_a_stream_has_transcript_and_data_each_in_its_order(module: ScriptedModule, model: str, tmp_path: Path) -> None:
    answer = asked(module, model, tmp_path, stream=True, stream_options={"include_usage": True}, **SPOKEN)
    *chunked, usage, done = answer.events
    assert (done, usage["choices"]) == ("[DONE]", [])
    assert usage["usage"]["completion_tokens_details"]["audio_tokens"] == 2
    deltas = [chunk["choices"][0]["delta"] for chunk in chunked]
    assert [delta.get("role") for delta in deltas] == ["assistant", *[None] * (len(deltas) - 1)]
    audio = [delta["audio"] for delta in deltas if "audio" in delta]
    assert len({each["id"] for each in audio}) == 1
    assert "".join(each.get("transcript", "") for each in audio) == "Good morning."
    assert b"".join(base64.b64decode(each.get("data", "")) for each in audio) == b"abcd"
    assert "expires_at" in audio[-1]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunked] == [*[None] * (len(chunked) - 1), "stop"]
    assert all("content" not in delta for delta in deltas)


def test_sound_is_of_the_format_that_was_asked_for(module: ScriptedModule, model: str, tmp_path: Path) -> None:
    fields = {**SPOKEN, "audio": {"format": "wav", "talker_top_k": 3}}
    sound = base64.b64decode(asked(module, model, tmp_path, **fields).json["choices"][0]["message"]["audio"]["data"])
    assert (sound[:4], sound[-4:]) == (b"RIFF", b"abcd")
    native = module.runtimes[0].spoken[-1][1]
    assert (native.speaker_name, native.talker_top_k) == ("eric", 3)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({**SPOKEN, "audio": {"voice": "nobody"}}, "audio.voice"),
        ({**SPOKEN, "audio": {"talker_top_p": 2.0}}, "audio.talker_top_p"),
        (
            {**SPOKEN, "messages": [{"role": "assistant", "audio": {"id": "audio-1"}}, USER_MESSAGE]},
            "messages[0].audio",
        ),
        ({**SPOKEN, "messages": [{"role": "user", "audio": {"transcript": "x"}}]}, "messages[0].audio"),
    ],
)
def test_what_it_does_not_say_is_refused_by_name_before_200(
    module: ScriptedModule, model: str, tmp_path: Path, fields: dict[str, Any], param: str
) -> None:
    answer = asked(module, model, tmp_path, stream=True, **fields)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert module.runtimes[0].spoken == []


def test_a_later_turn_brings_what_was_said_by_its_transcript(
    module: ScriptedModule, model: str, tmp_path: Path
) -> None:
    earlier = {"role": "assistant", "content": None, "audio": {"id": "audio-1", "data": "", "transcript": "Hello."}}
    assert asked(module, model, tmp_path, messages=[USER_MESSAGE, earlier, USER_MESSAGE]).status == 200
    messages = module.requests[-1].requests[0].messages
    assert [[part.content for part in message.contents] for message in messages] == [["Say hi"], ["Hello."], ["Say hi"]]


def test_the_speech_route_speaks_with_it(module: ScriptedModule, model: str, tmp_path: Path) -> None:
    body = {"model": "omni", "input": "Good evening.", "voice": "vivian", "response_format": "pcm"}
    answer = asked(module, model, tmp_path, "/v1/audio/speech", **body)
    assert (answer.status, answer.body, answer.header("content-type")) == (200, b"abcd", "audio/pcm")
    (text, native) = module.runtimes[0].spoken[-1]
    assert (text, native.speaker_name) == ("Good evening.", "vivian")
    answer = asked(module, model, tmp_path, "/v1/audio/speech", **{**body, "speed": 2})
    assert (answer.status, answer.error["param"]) == (400, "speed")


def test_a_launch_that_does_not_speak_refuses_by_name_before_200(
    module: ScriptedModule, model: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with served(lambda: opened(model, tmp_path, enable_in_flight_batching=True)) as (client, _):
            answer = await client.chat(stream=True, **SPOKEN)
            assert (answer.status, answer.error["code"], answer.error["param"]) == (
                400,
                "unsupported_modality",
                "modalities",
            )
            assert "in-flight batching serves text only" in answer.error["message"]
            answer = await client.post("/v1/audio/speech", {"model": "omni", "input": "Hi."})
            assert (answer.status, answer.error["param"]) == (400, "model")
            assert "in-flight batching serves text only" in answer.error["message"]
            assert (await client.get("/v1/voices")).json["data"] == []

    run(scenario())


def test_voices_and_modalities_are_listed(module: ScriptedModule, model: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(lambda: opened(model, tmp_path)) as (client, _):
            voices = (await client.get("/v1/voices")).json["data"]
            assert [(voice["id"], voice["model"]) for voice in voices] == [("eric", "omni"), ("vivian", "omni")]
            about = (await client.get("/v1/models/omni")).json["edgellm"]
            assert (about["output_modalities"], about["voices"]) == (["text", "audio"], ["eric", "vivian"])
            assert about["context_length"] == 256

    run(scenario())


def test_a_client_that_leaves_ends_the_call_and_frees_its_place(
    module: ScriptedModule, model: str, tmp_path: Path
) -> None:
    def say(channel: AudioStreamChannel) -> int:
        channel.push(AudioChunk(b"ab"))
        channel.wait_until_cancelled()
        return 1

    async def scenario() -> None:
        async with served(lambda: opened(model, tmp_path)) as (client, engine):
            module.speech = say
            module.script = lambda _: Script(("Good", " morning."), gate=threading.Event())
            exchange = client.start_chat(stream=True, **SPOKEN)
            await until(lambda: b'"data"' in exchange.answer.body)
            assert module.runtimes[0].active == 1
            exchange.leave()
            await exchange.done()
            await until(lambda: engine.running_requests == 0 and module.runtimes[0].active == 0)
            module.speech, module.script = chunks(b"cd"), lambda _: Script(("Again.",))
            answer = await client.chat(**SPOKEN)
            assert answer.json["choices"][0]["message"]["audio"]["transcript"] == "Again."

    run(scenario())


def test_a_failure_in_the_middle_ends_the_stream_with_an_error(
    module: ScriptedModule, model: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with served(lambda: opened(model, tmp_path)) as (client, engine):
            module.script = lambda _: Script(("Good",), reason=FinishReason.ERROR)
            answer = await client.chat(stream=True, **SPOKEN)
            assert answer.status == 200
            assert answer.events[-1]["error"]["code"] == "internal_error"
            assert engine.running_requests == 0

    run(scenario())
