"""TTS: the parts of a text, and a real voice through the Python API."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm import TTS, AudioParams, load_model
from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.catalogue import CATALOGUE, install
from edgellm.errors import (
    CheckpointError,
    ClosedError,
    ConfigError,
    RequestError,
    RuntimeUnavailableError,
    UnsupportedParameterError,
)
from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.generation import SpeechPrompt
from edgellm.runtime.piper_speaker import FIRST_PHONEMES_MAX, PHONEMES_AT_ONCE_MAX, _parts

needs_piper = pytest.mark.skipif(
    importlib.util.find_spec("piper") is None and os.environ.get("EDGELLM_CI") != "1",
    reason="the speech extra is not installed: make test sets it up",
)
RATE_HZ = 24_000
SENTENCE = "The quick brown fox jumps over the lazy dog."


def cut(*sentences: str, phonemes_max: int = PHONEMES_AT_ONCE_MAX) -> list[str]:
    return ["".join(part) for part in _parts([list(sentence) for sentence in sentences], phonemes_max)]


def test_short_sentences_are_parts_and_long_ones_are_cut_where_a_clause_or_a_word_ends() -> None:
    assert cut("one.", "two.") == ["one.", "two."]
    words = "word " * 40
    parts = cut("one.", words)
    assert len(parts) > 2
    assert all(part.endswith(" ") for part in parts[1:-1])
    clauses = "so it is said, " * 20
    assert all(part.rstrip().endswith(",") for part in cut("one.", clauses)[1:-1])


def test_the_first_clause_comes_first() -> None:
    rest = " then it goes on" * 4
    assert cut(f"well, well,{rest}.") == ["well, well,", f"{rest}."]
    assert cut("well, then it goes.") == ["well, then it goes."], "it is short enough as it is"
    late = "x" * FIRST_PHONEMES_MAX + ", y"
    assert cut(late) == [late], "it has no clause so soon"


def test_what_has_no_sound_is_no_part() -> None:
    assert cut("", "...", " ", "?!") == []


@given(st.lists(st.text("ab ,.", max_size=400), max_size=4), st.integers(1, 200))
def test_parts_have_every_phoneme_and_a_length(sentences: list[str], phonemes_max: int) -> None:
    parts = cut(*sentences, phonemes_max=phonemes_max)
    assert all(0 < len(part) <= phonemes_max for part in parts)
    assert [char for part in parts for char in part if char in "ab"] == [
        char for sentence in sentences for char in sentence if char in "ab"
    ]


@pytest.fixture(scope="module")
def tts() -> Iterator[TTS]:
    weights = install(CATALOGUE["voice"], models_dir(default_cache_dir(os.environ)))
    with TTS(weights, threads=1) as made:
        yield made


def seconds(sound: Sequence[bytes | None]) -> float:
    return sum(len(piece or b"") for piece in sound) / 2 / RATE_HZ


@needs_piper
def test_a_text_is_spoken_a_sentence_at_a_time(tts: TTS) -> None:
    deltas = list(tts.generate_speech_stream(f"{SENTENCE} {SENTENCE}"))
    *spoken, last = deltas
    assert len(spoken) >= 2
    assert all(delta.audio_bytes and not delta.finished for delta in spoken)
    assert (last.finished, last.finish_reason, last.audio_bytes) == (True, "stop", None)
    assert last.prompt_tokens is not None
    assert last.prompt_tokens > len(SENTENCE)
    assert 3 < seconds([delta.audio_bytes for delta in spoken]) < 12


@needs_piper
@pytest.mark.parametrize("unit", ["word ", "7 ", "你", "8253947160", "Привет ", "the quick brown fox and "])
def test_nothing_of_a_long_text_without_a_pause_is_left_out(tts: TTS, unit: str) -> None:
    def phonemes(times: int) -> int:
        return tts.prepare(SpeechPrompt(unit * times, "joe")).units

    few, many = 4, 4096 // len(unit) // 8
    assert phonemes(many) >= 0.9 * phonemes(few) / few * many


@needs_piper
def test_a_paragraph_is_spoken_on_its_own_and_other_controls_are_spaces(tts: TTS) -> None:
    def parts(text: str) -> int:
        return len(tts.prepare(SpeechPrompt(text, "joe")).parts)

    assert (parts("Title\n\nNext line"), parts("Title\nNext line"), parts("Title\t\x00Next line")) == (2, 1, 1)


@needs_piper
def test_every_part_is_as_loud_as_it_is_meant(tts: TTS) -> None:
    deltas = tts.generate_speech_stream(f"{SENTENCE} {SENTENCE} {SENTENCE}")
    sounds = [
        np.frombuffer(delta.audio_bytes, dtype="<i2") for delta in deltas if delta.audio_frames and delta.audio_bytes
    ]
    peaks = [int(np.abs(sound.astype(np.int32)).max()) for sound in sounds]
    assert len(peaks) >= 3
    assert peaks[0] > 0.8 * 32_768, "the first is as loud as there is room for"
    assert min(peaks) > 0.25 * 32_768
    assert max(peaks) < 32_767, "nothing was cut"


@needs_piper
def test_it_says_what_it_is(tts: TTS) -> None:
    assert (tts.list_voices(), tts.runtime_kind, tts.speech_available) == (["joe"], "tts", True)
    assert tts.model_id == "en_US-joe-medium"


@needs_piper
@pytest.mark.parametrize(
    ("text", "params", "param"),
    [
        ("", AudioParams(), "input"),
        ("...", AudioParams(), "input"),
        ("x" * 4097, AudioParams(), "input"),
        ("7 " * 2048, AudioParams(speed=0.25), "input"),  # more than half an hour
        ("x", AudioParams(voice="ann"), "voice"),
        ("x", AudioParams(speed=0), "speed"),
        ("x", AudioParams(speed=float("nan")), "speed"),
    ],
)
def test_what_is_wrong_is_raised_at_the_call(tts: TTS, text: str, params: AudioParams, param: str) -> None:
    with pytest.raises(RequestError) as refused:
        tts.generate_speech_stream(text, params)
    assert refused.value.param == param


@needs_piper
def test_a_voice_without_a_talker_refuses_what_samples_one(tts: TTS) -> None:
    for params in (AudioParams(talker_top_k=1), AudioParams(max_audio_length=1), AudioParams(talker_temperature=0.0)):
        with pytest.raises(UnsupportedParameterError, match="talker"):
            tts.generate_speech_stream("x", params)


@needs_piper
def test_a_stream_that_is_closed_early_leaves_the_voice_to_the_next(tts: TTS) -> None:
    stream = tts.generate_speech_stream(f"{SENTENCE} " * 20)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert len(list(tts.generate_speech_stream("Yes."))) >= 2


@needs_piper
def test_cancelled_it_stops_with_the_part_it_is_in(tts: TTS) -> None:
    asked = iter(range(100))

    def count() -> None:
        if next(asked) == 2:
            cancellation.set()

    cancellation = Cancellation(count)
    prompt = SpeechPrompt(f"{SENTENCE} " * 20, "joe")
    deltas = list(tts.speak(tts.prepare(prompt), prompt, cancellation))
    assert sum(delta.audio_frames > 0 for delta in deltas) == 2
    assert not any(delta.finished for delta in deltas)


@needs_piper
def test_threads_take_turns(tts: TTS) -> None:
    sounds: list[float] = []

    def speak() -> None:
        sounds.append(seconds([delta.audio_bytes for delta in tts.generate_speech_stream(SENTENCE)]))

    threads = [threading.Thread(target=speak) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sounds) == 3
    assert all(abs(one - other) < 1.5 for one, other in pairwise(sounds))


@needs_piper
def test_load_model_gives_a_voice_and_a_closed_one_says_so(tmp_path: Path) -> None:
    weights = install(CATALOGUE["voice"], models_dir(default_cache_dir(os.environ)))
    made = load_model(weights.parent)
    assert isinstance(made, TTS)
    made.close()
    made.close()
    for use in (made.list_voices, made.__enter__, lambda: made.generate_speech_stream("x")):
        with pytest.raises(ClosedError, match="closed"):
            use()


@needs_piper
def test_a_damaged_voice_is_named(tmp_path: Path) -> None:
    config = install(CATALOGUE["voice"], models_dir(default_cache_dir(os.environ))).with_name(
        "en_US-joe-medium.onnx.json"
    )
    (tmp_path / "v.onnx.json").write_text(config.read_text())
    (tmp_path / "v.onnx").write_bytes(b"no model")
    with pytest.raises(CheckpointError, match=r"v\.onnx: this voice cannot be loaded"):
        TTS(tmp_path / "v.onnx")
    broken = json.loads(config.read_text())
    del broken["phoneme_id_map"]
    (tmp_path / "v.onnx.json").write_text(json.dumps(broken))
    with pytest.raises(CheckpointError, match=r"v\.onnx"):
        TTS(tmp_path / "v.onnx")


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v.onnx.json").write_text('{"audio": {"sample_rate": 22050}}')
    (tmp_path / "v.onnx").write_bytes(b"no model")
    monkeypatch.setitem(sys.modules, "piper.config", None)
    with pytest.raises(RuntimeUnavailableError, match=r"pip install 'edgellm\[speech\]'"):
        TTS(tmp_path / "v.onnx")


def test_an_option_of_text_models_is_refused_by_name() -> None:
    for option in ("enable_context_reuse", "max_batch_size"):
        with pytest.raises(ConfigError, match=option):
            TTS("voice", **{option: True})  # type: ignore[arg-type]


def test_no_module_of_ours_imports_piper() -> None:
    program = (
        "import pkgutil, importlib, sys, edgellm\n"
        "for found in pkgutil.walk_packages(edgellm.__path__, 'edgellm.'):\n"
        "    if not found.name.endswith(('__main__', '._native')):\n"  # which is no Python
        "        importlib.import_module(found.name)\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'piper', 'onnxruntime'}))"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout.strip().splitlines()[-1] == "[]"
