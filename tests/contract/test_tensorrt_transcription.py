"""A model that writes down what it hears: built by the stand-in, loaded, and asked as NVIDIA's server asks it.

The board is described, and a scripted module is in the place of the one that needs a GPU.
"""

from __future__ import annotations

import io
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.tensorrt_board import OnBoard, described
from tests.unit.runtime.scripted_runtime import FinishReason, Script, ScriptedModule

from edgellm.cli.engine_context import EngineContext
from edgellm.config import ModelSettings, Settings
from edgellm.engines.progress import ignore_progress
from edgellm.engines.store import Store
from edgellm.errors import (
    BundleDamagedError,
    ConfigError,
    EdgeLLMError,
    EngineMissingError,
    GenerationError,
    RequestError,
    UnsupportedModelError,
    UnsupportedParameterError,
    WorkerFailedError,
)
from edgellm.media.media_file import MediaFile
from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.generation import AudioPrompt, ChatPrompt, GenerationRequest
from edgellm.runtime.load_transcriber import load_transcriber
from edgellm.runtime.outputs import TranscriptFacts, TranscriptPiece, TranscriptSegment
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.transcriber import Transcriber
from edgellm.service.load_estimate import load_bytes
from edgellm.service.models import model_specs, sequential_arguments
from edgellm.serving.transcription import TranscribingModel

pytest.importorskip("av", reason="the audio extra is not installed: make test sets it up")

RATE_HZ = 16_000
GIB = 1 << 30
ENGLISH = ("language ", "English<asr", "_text>Good", " morning.")


@pytest.fixture
def module(on_board: OnBoard) -> ScriptedModule:
    scripted = ScriptedModule(extensions=False)
    scripted.script = lambda _: Script(ENGLISH)
    on_board(scripted)
    return scripted


@pytest.fixture
def model(tmp_path: Path) -> str:
    return described(tmp_path / "listener", {"model_type": "qwen3_asr", "thinker_config": {"audio_config": {}}})


@pytest.fixture
def opened(module: ScriptedModule, model: str, tmp_path: Path) -> Iterator[Transcriber]:
    transcriber = load_transcriber(model, cache_dir=str(tmp_path / "cache"))
    yield transcriber
    transcriber.close()


def sound(duration_seconds: float) -> MediaFile:
    content = io.BytesIO()
    with wave.open(content, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE_HZ)
        written.writeframes(bytes(2 * round(duration_seconds * RATE_HZ)))
    media = MediaFile.empty()
    media.append(content.getvalue())
    return media


def transcript(
    opened: Transcriber, duration_seconds: float = 2.0, temperature: float = 0.0, **fields: Any
) -> tuple[str, TranscriptFacts, list[TranscriptPiece]]:
    *said, facts = opened.transcribe(AudioPrompt(sound(duration_seconds), **fields), temperature, Cancellation())
    assert isinstance(facts, TranscriptFacts)
    pieces = [piece for piece in said if isinstance(piece, TranscriptPiece)]
    assert len(pieces) == len(said)
    assert not any(isinstance(piece, TranscriptSegment) for piece in said)
    return "".join(piece.text for piece in pieces), facts, pieces


def test_it_is_built_once_and_loaded_with_its_encoder_and_its_checkpoint(
    module: ScriptedModule, model: str, tmp_path: Path
) -> None:
    cache_dir = str(tmp_path / "cache")
    with pytest.raises(EngineMissingError):
        load_transcriber(model, cache_dir=cache_dir, build_on_start=False)
    for _ in range(2):
        opened = load_transcriber(model, cache_dir=cache_dir, build_on_start=not module.runtimes)
        root, media, _, checkpoint, _ = module.runtimes[-1].arguments["positional"]
        assert (root, media, checkpoint) == (opened.bundle_dir, opened.bundle_dir, model)
        assert (Path(root) / "audio" / "audio_encoder.engine").is_file()
        capabilities = opened.capabilities
        assert (opened.model_id, capabilities.runtime, capabilities.in_flight_batching) == (
            "listener",
            "tensorrt",
            False,
        )
        assert capabilities.input_modalities == ("audio",)
        assert len(capabilities.transcription.languages) == 30
        assert (capabilities.transcription.translates, capabilities.transcription.has_times) == (False, False)
        opened.close()


def test_a_sound_is_one_user_message_and_one_buffer(module: ScriptedModule, opened: Transcriber) -> None:
    text, facts, pieces = transcript(opened, 2.5)
    assert (text, facts) == ("Good morning.", TranscriptFacts("en", 2.5))
    assert [piece.text for piece in pieces] == ["", "", "Good", " morning.", ""], "as it is written, without its head"
    assert [token for piece in pieces for token in piece.token_ids] == [0, 1, 2, 3]
    assert pieces[0].prompt_tokens == 7
    (native,) = module.requests
    (item,) = native.requests
    (buffer,) = item.audio_buffers
    assert (buffer.sample_rate, buffer.num_samples, item.image_buffers) == (RATE_HZ, round(2.5 * RATE_HZ), [])
    (message,) = item.messages
    assert message.role == "user"
    assert [(part.type, part.content) for part in message.contents] == [("audio", "")]
    assert (native.temperature, native.top_k, native.top_p) == (0.0, 1, 1.0)
    assert native.max_generate_length == 4096


def test_language_context_and_temperature_reach_the_model(module: ScriptedModule, opened: Transcriber) -> None:
    _, facts, _ = transcript(opened, language="de", context="Herr Köhler", temperature=0.5)
    assert facts.language == "de", "what was asked for, whatever the model calls it"
    (native,) = module.requests
    system, user = native.requests[0].messages
    assert (system.role, [part.content for part in system.contents]) == ("system", ["German"])
    assert [(part.type, part.content) for part in user.contents] == [("audio", ""), ("text", "Herr Köhler")]
    assert (native.temperature, native.top_k) == (0.5, 50)


def test_what_is_longer_than_the_encoder_takes_is_heard_in_stretches(
    module: ScriptedModule, opened: Transcriber
) -> None:
    duration_seconds = 130.0
    text, facts, _ = transcript(opened, duration_seconds)
    assert text == "Good morning. Good morning. Good morning."
    assert facts.duration_seconds == duration_seconds
    samples = [request.requests[0].audio_buffers[0].num_samples for request in module.requests]
    assert sum(samples) == round(duration_seconds * RATE_HZ)
    assert max(samples) <= 60 * RATE_HZ
    roles = [[message.role for message in request.requests[0].messages] for request in module.requests]
    assert roles == [["user"], ["system", "user"], ["system", "user"]], "the language that was heard first holds"


def test_stretches_of_a_language_without_spaces_have_none_between_them(
    module: ScriptedModule, opened: Transcriber
) -> None:
    module.script = lambda _: Script(("language Chinese<asr_text>早上好。",))
    assert transcript(opened, 70.0)[:2] == ("早上好。早上好。", TranscriptFacts("zh", 70.0))


def test_what_is_shorter_than_the_encoder_takes_ends_in_silence(module: ScriptedModule, opened: Transcriber) -> None:
    _, facts, _ = transcript(opened, 0.3)
    assert facts.duration_seconds == 0.3
    assert module.requests[0].requests[0].audio_buffers[0].num_samples == RATE_HZ


@pytest.mark.parametrize(
    ("texts", "text", "language"),
    [
        (("language None<asr_text>",), "", ""),
        (("language Klingon<asr_text>nuqneH",), "nuqneH", ""),
        (("Hello ", "there."), "Hello there.", ""),
        (("language", " is what people speak, and there are thousands of them in the world."), None, ""),
        (("languages differ",), "languages differ", ""),
        (("<asr_text>", "Hello."), "Hello.", ""),
        ((), "", ""),
    ],
)
def test_a_head_is_no_part_of_the_transcript_and_what_is_none_is(
    module: ScriptedModule, opened: Transcriber, texts: tuple[str, ...], text: str | None, language: str
) -> None:
    module.script = lambda _: Script(texts)
    said, facts, _ = transcript(opened)
    assert said == ("".join(texts) if text is None else text)
    assert facts.language == language


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"language": "tlh"}, RequestError, "language"),
        ({"translate": True}, UnsupportedParameterError, "model"),
        ({"with_times": True}, UnsupportedParameterError, "response_format"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    module: ScriptedModule, opened: Transcriber, fields: dict[str, Any], error: type[RequestError], param: str
) -> None:
    with pytest.raises(error) as refused:
        transcript(opened, **fields)
    assert refused.value.param == param
    assert module.requests == []


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script(error=RuntimeError("CUDA out of memory while Hello was heard")), GenerationError),
        (Script(error=RuntimeError("failed worker: audio")), WorkerFailedError),
        (Script(reason=FinishReason.ERROR), GenerationError),
        (Script(terminal=False), GenerationError),
        (Script((), terminal=False, error=RuntimeError("EDGELLM_INPUT_TOO_LONG: 5000")), RequestError),
    ],
)
def test_a_failed_call_is_an_error_and_the_next_one_is_heard(
    module: ScriptedModule, opened: Transcriber, script: Script, error: type[EdgeLLMError]
) -> None:
    module.script = lambda _: script
    with pytest.raises(error) as failed:
        transcript(opened)
    assert "Hello" not in str(failed.value)
    assert getattr(failed.value, "param", None) == ("prompt" if error is RequestError else None)
    assert module.runtimes[0].active == 0
    module.script = lambda _: Script(ENGLISH)
    assert transcript(opened)[0] == "Good morning."


def test_a_transcript_that_nobody_wants_ends_the_call_though_nothing_comes(
    module: ScriptedModule, opened: Transcriber
) -> None:
    module.script = lambda _: Script(("a", "b"), gate=threading.Event())
    steps = [0]
    cancellation = Cancellation(lambda: steps.__setitem__(0, steps[0] + 1))
    said = opened.transcribe(AudioPrompt(sound(2)), 0.0, cancellation)
    assert isinstance(next(said), TranscriptPiece)
    threading.Timer(0.5, cancellation.set).start()
    before = steps[0]
    assert list(said) == []
    assert steps[0] - before < 3, "who only waits does not seem to work"
    assert module.runtimes[0].active == 0
    assert [thread.name for thread in threading.enumerate() if thread.name == "edgellm-generation"] == []


def test_a_lane_transcribes_and_says_what_was_heard(module: ScriptedModule, opened: Transcriber) -> None:
    request = GenerationRequest(AudioPrompt(sound(2)), SamplingParams(temperature=0))
    transcribing = TranscribingModel(opened)
    work = transcribing.work(request, Cancellation())
    work.check()
    *deltas, last = list(work.deltas())
    work.close()
    assert "".join(delta.text for delta in deltas) == "Good morning."
    assert all(delta.segments is None for delta in deltas)
    assert (last.finished, last.finish_reason, last.transcript) == (True, "stop", TranscriptFacts("en", 2.0))
    with pytest.raises(UnsupportedParameterError, match="transcribes speech and takes no text"):
        transcribing.work(GenerationRequest(ChatPrompt([]), SamplingParams()), Cancellation())


def test_an_engine_without_its_encoder_is_refused(
    module: ScriptedModule, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store finds files that went; this is one that was built without them."""
    monkeypatch.setattr("edgellm.runtime.tensorrt_load.bundle_layout", lambda found: _without_audio(found))
    with pytest.raises(BundleDamagedError, match="listener: its engine has no encoder for speech recognition"):
        load_transcriber(model, cache_dir=str(tmp_path / "cache"))


def _without_audio(found: Any) -> Any:
    from edgellm.runtime.loaded_model import BundleLayout

    return BundleLayout(str(found.root))


def test_where_models_run_on_the_cpu_it_says_so(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_DEVICE_FILE", str(tmp_path / "absent.json"))
    with pytest.raises(UnsupportedModelError, match=r"listener: a speech recognition model for TensorRT, .* Whisper"):
        load_transcriber(model, cache_dir=str(tmp_path))
    assert not (tmp_path / "engines").exists()


def test_a_configuration_of_it_is_prewarmed_estimated_and_served(
    module: ScriptedModule, model: str, tmp_path: Path
) -> None:
    described_model = ModelSettings(source=model, max_kv_cache_capacity=2048, max_input_len=1024)
    settings = Settings(cache_dir=tmp_path / "cache", models=(described_model,))
    (spec,) = model_specs(settings)
    assert (spec.name, spec.kind) == ("listener", "asr")
    context = EngineContext(settings, Store(tmp_path / "cache" / "engines", []))
    ((_, builder, request),) = context.requests(ignore_progress, download=False)
    assert list(context.files_without_engine(ignore_progress)) == []
    context.store.prepare(builder, request, allow_build=True, on_progress=ignore_progress).close()
    needed_bytes = load_bytes(settings.models[0], settings)
    assert needed_bytes is not None
    assert needed_bytes > GIB
    opened = load_transcriber(**{**sequential_arguments(described_model, settings, 2), "build_on_start": False})
    assert opened.capabilities.max_kv_cache_capacity == 2048
    assert transcript(opened)[0] == "Good morning."
    opened.close()
    with pytest.raises(ConfigError, match="max_batch_size is for models that make text"):
        model_specs(Settings(cache_dir=tmp_path / "cache", models=(ModelSettings(source=model, max_batch_size=2),)))
