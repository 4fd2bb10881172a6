"""A model that only speaks: built by the stand-in, loaded with its parts, and what is heard of each way a call ends.

The board is described, and a scripted module is in the place of the one that needs a GPU.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.tensorrt_board import OnBoard, described
from tests.unit.runtime.scripted_speech import AudioChunk, AudioStreamChannel, SpeakingModule, chunks

from edgellm.cli.engine_context import EngineContext
from edgellm.config import ModelSettings, Settings
from edgellm.engines.progress import ignore_progress
from edgellm.engines.source import resolve
from edgellm.engines.store import Store
from edgellm.engines.store_eviction import is_loaded
from edgellm.errors import (
    BundleDamagedError,
    ClosedError,
    EngineMissingError,
    GenerationError,
    RequestError,
    RuntimeUnavailableError,
    UnsupportedModelError,
    UnsupportedParameterError,
    WorkerFailedError,
)
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.generation import GenerationRequest, SpeechPrompt
from edgellm.runtime.load_model import load_model
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.tensorrt_speaker import TensorRTSpeaker
from edgellm.runtime.tts import TTS
from edgellm.service.load_estimate import load_bytes
from edgellm.service.models import model_specs, sequential_arguments
from edgellm.serving.speech import SpeakingModel

GIB = 1 << 30


@pytest.fixture
def module(on_board: OnBoard) -> SpeakingModule:
    scripted = SpeakingModule()
    on_board(scripted)
    return scripted


@pytest.fixture
def model(tmp_path: Path) -> str:
    return described(tmp_path / "speaker", {"model_type": "qwen3_tts"})


def opened(model: str, tmp_path: Path, **options: Any) -> TTS:
    return TTS(model, cache_dir=tmp_path / "cache", **options)


def test_it_is_built_once_and_loaded_with_its_parts_and_its_checkpoint(
    module: SpeakingModule, model: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineMissingError):
        opened(model, tmp_path, build_on_start=False)
    for _ in range(2):
        with opened(model, tmp_path, build_on_start=not module.speakers) as tts:
            root = Path(tts.bundle_dir)
            parts = [str(root / name) for name in ("talker", "code_predictor", "code2wav", "talker")]
            assert list(module.speakers[-1].arguments) == [*parts, model]
            assert tts.list_voices() == ["eric", "vivian"]
            assert (tts.model_id, tts.capabilities.runtime, tts.capabilities.max_batch_size) == (
                "speaker",
                "tensorrt",
                1,
            )
    with pytest.raises(ClosedError):
        tts.list_voices()
    with load_model(model, cache_dir=str(tmp_path / "cache")) as loaded:
        assert isinstance(loaded, TTS)


def test_a_text_is_spoken_with_the_talker_s_parameters(module: SpeakingModule, model: str, tmp_path: Path) -> None:
    module.speech = chunks(b"ab", b"", b"cd")
    with opened(model, tmp_path) as tts:
        params = AudioParams(voice="vivian", talker_temperature=0.5, talker_top_k=7, codec_chunk_frames=3)
        deltas = list(tts.generate_speech_stream("Good morning.", params))
        list(tts.generate_speech_stream("Again."))
    assert [delta.audio_bytes for delta in deltas] == [b"ab", b"cd", None], "silence of no length is not given"
    assert [delta.finished for delta in deltas] == [False, False, True]
    (text, native), (_, defaults) = module.speakers[0].spoken
    assert (text, native.speaker_name, native.talker_temperature) == ("Good morning.", "vivian", 0.5)
    assert (native.talker_top_k, native.codec_chunk_frames, native.max_audio_length) == (7, 3, 4096)
    assert (defaults.speaker_name, defaults.talker_temperature, defaults.talker_top_k) == ("eric", 0.9, 50)


def test_a_model_without_names_has_one_voice(module: SpeakingModule, model: str, tmp_path: Path) -> None:
    module.names = ()
    with opened(model, tmp_path) as tts:
        assert tts.list_voices() == ["default"]
        assert b"".join(delta.audio_bytes or b"" for delta in tts.generate_speech_stream("Hello.")) == b"abcd"
    assert module.speakers[0].spoken[0][1].speaker_name == ""


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"voice": "nobody"}, "voice"),
        ({"speed": 1.5}, "speed"),
        ({"talker_temperature": -0.1}, "talker_temperature"),
        ({"talker_temperature": float("nan")}, "talker_temperature"),
        ({"talker_top_k": 1.5}, "talker_top_k"),
        ({"talker_top_p": 1.01}, "talker_top_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"max_audio_length": 0}, "max_audio_length"),
        ({"codec_chunk_frames": True}, "codec_chunk_frames"),
        ({"talker_prefill_threshold": 2000}, "talker_prefill_threshold"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name_at_the_call(
    module: SpeakingModule, model: str, tmp_path: Path, params: dict[str, Any], param: str
) -> None:
    with opened(model, tmp_path) as tts, pytest.raises((RequestError, UnsupportedParameterError)) as refused:
        tts.generate_speech_stream("Hello.", AudioParams(**params))
    assert refused.value.param == param
    assert module.speakers[0].spoken == []


def test_sound_that_comes_with_the_end_is_not_lost(module: SpeakingModule, model: str, tmp_path: Path) -> None:
    def say(channel: AudioStreamChannel) -> int:
        channel.push(AudioChunk(b"ab"))
        return 1  # and no chunk says that it is the last

    module.speech = say
    with opened(model, tmp_path) as tts:
        assert [delta.audio_bytes for delta in tts.generate_speech_stream("Hello.")] == [b"ab", None]


@pytest.mark.parametrize(
    ("text", "error"),
    [("CUDA out of memory while Hello was spoken", GenerationError), ("failed worker: talker", WorkerFailedError)],
)
def test_a_failed_call_is_an_error_after_the_sound_that_it_made(
    module: SpeakingModule, model: str, tmp_path: Path, text: str, error: type[Exception]
) -> None:
    def say(channel: AudioStreamChannel) -> int:
        channel.push(AudioChunk(b"ab"))
        raise RuntimeError(text)

    module.speech = say
    with opened(model, tmp_path) as tts:
        stream = tts.generate_speech_stream("Hello.")
        assert next(stream).audio_bytes == b"ab"
        with pytest.raises(error) as failed:
            next(stream)
        assert "Hello" not in str(failed.value)
        assert module.speakers[0].calls_running == 0
        module.speakers[0].speech = chunks(b"cd")
        assert next(tts.generate_speech_stream("Again.")).audio_bytes == b"cd", "the next one is spoken"


def test_a_stream_that_is_closed_cancels_the_call_and_waits_for_it(
    module: SpeakingModule, model: str, tmp_path: Path
) -> None:
    def say(channel: AudioStreamChannel) -> int:
        channel.push(AudioChunk(b"ab"))
        channel.wait_until_cancelled()
        return 1

    module.speech = say
    with opened(model, tmp_path) as tts:
        stream = tts.generate_speech_stream("Hello.")
        assert next(stream).audio_bytes == b"ab"
        assert module.speakers[0].calls_running == 1
        stream.close()  # type: ignore[attr-defined]
        assert module.speakers[0].calls_running == 0
    assert [thread.name for thread in threading.enumerate() if thread.name == "edgellm-speech"] == []


def test_a_lane_speaks_in_the_format_that_was_asked_for(module: SpeakingModule, model: str, tmp_path: Path) -> None:
    with opened(model, tmp_path) as tts:
        request = GenerationRequest(SpeechPrompt("Hello.", "eric", format_name="wav"), SamplingParams())
        work = SpeakingModel(tts).work(request, Cancellation())
        work.check()
        sound = b"".join(delta.audio_bytes or b"" for delta in work.deltas())
    assert sound[:4] == b"RIFF"
    assert sound.endswith(b"abcd")


def test_an_engine_without_a_part_is_refused_by_the_part(module: SpeakingModule, model: str, tmp_path: Path) -> None:
    """A store finds files that went; this is one that was built without them."""
    engine = tmp_path / "bundle" / "talker" / "llm.engine"
    engine.parent.mkdir(parents=True)
    engine.write_bytes(b"engine")
    source = resolve(model, tmp_path)
    lease: Any = SimpleNamespace(directory=tmp_path / "bundle")
    with pytest.raises(
        BundleDamagedError, match=r"speaker: its engine has no code2wav, code_predictor — build it anew"
    ):
        TensorRTSpeaker(module, source, lease)  # type: ignore[arg-type]


def test_a_runtime_that_does_not_start_leaves_the_engine_to_others(
    module: SpeakingModule, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("CUDA driver version is insufficient")

    monkeypatch.setattr(module, "TTSRuntime", refuse)
    with pytest.raises(RuntimeUnavailableError, match="CUDA driver"):
        opened(model, tmp_path)
    (entry,) = Store(tmp_path / "cache" / "engines", []).entries()
    assert not is_loaded(entry)


def test_where_models_run_on_the_cpu_it_says_so(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_DEVICE_FILE", str(tmp_path / "absent.json"))
    for load in (TTS, load_model):
        with pytest.raises(UnsupportedModelError, match=r"speaker: a speech model for TensorRT, .* take a Piper voice"):
            load(model, cache_dir=str(tmp_path))
    assert not (tmp_path / "engines").exists()


def test_a_configuration_of_it_is_prewarmed_estimated_and_served(
    module: SpeakingModule, model: str, tmp_path: Path
) -> None:
    settings = Settings(cache_dir=tmp_path / "cache", models=(ModelSettings(source=model),))
    (spec,) = model_specs(settings)
    assert (spec.name, spec.kind) == ("speaker", "tts")
    context = EngineContext(settings, Store(tmp_path / "cache" / "engines", []))
    ((_, builder, request),) = context.requests(ignore_progress, download=False)
    context.store.prepare(builder, request, allow_build=True, on_progress=ignore_progress).close()
    needed_bytes = load_bytes(settings.models[0], settings)
    assert needed_bytes is not None
    assert needed_bytes > GIB
    arguments = {**sequential_arguments(settings.models[0], settings, 2), "build_on_start": False}
    with TTS(**arguments) as tts:
        assert tts.list_voices() == ["eric", "vivian"]


def test_waiting_for_sound_is_no_work(module: SpeakingModule, model: str, tmp_path: Path) -> None:
    """So a runtime that hangs is found, by whoever counts."""

    def hang(channel: AudioStreamChannel) -> int:
        channel.wait_until_cancelled()
        return 0

    module.speech = hang
    noted: list[None] = []
    cancellation = Cancellation(lambda: noted.append(None))
    with opened(model, tmp_path) as tts:
        threading.Timer(0.5, cancellation.set).start()
        assert list(tts.prepare(SpeechPrompt("Hello.", "eric")).pcm(cancellation)) == []
        assert module.speakers[0].calls_running == 0
    assert noted == []
