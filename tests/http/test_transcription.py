"""Speech through the openai client to text, from a daemon with a Whisper model beside a text model."""

from __future__ import annotations

import io
import math
import struct
import time
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import anthropic
import httpx
import openai
import pytest
from tests.http.daemon_process import Daemon
from tests.http.speaking_daemon import HEARS, WAIT_SECONDS, require_extras, speaking_daemon, whisper_folder
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint

SPOKEN = Path(__file__).parent / "audio" / "spoken.ogg"
SPOKEN_SECONDS = 5.7
# Which of its words a model of this size must hear, whatever it makes of the others.
KEY_WORDS = ("quick brown fox", "lazy dog", "open the window", "turn on the light")


require_extras(HEARS)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("audio")
    text = write_checkpoint(folder / "model", replace(VARIANTS["llama"], context_length=96))
    sources = {"text": text, "whisper": whisper_folder()}
    with speaking_daemon(folder, sources, models={"whisper": "threads = 1\n"}) as started:
        yield started


@pytest.fixture
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0, timeout=WAIT_SECONDS) as made:
        yield made


def sound(duration_seconds: float, rate_hz: int = 8000) -> bytes:
    """A low tone, as a WAV file."""
    content = io.BytesIO()
    samples = [
        round(8000 * math.sin(2 * math.pi * 220 * at / rate_hz)) for at in range(round(duration_seconds * rate_hz))
    ]
    with wave.open(content, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(rate_hz)
        written.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return content.getvalue()


def test_speech_is_written_down_with_times_of_segments_and_words(client: openai.OpenAI) -> None:
    begun = time.monotonic()
    answer = client.audio.transcriptions.create(
        model="whisper",
        file=SPOKEN,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        language="en",
        prompt="A fox and a dog.",
    )
    took_seconds = time.monotonic() - begun
    print(f"{SPOKEN_SECONDS} s of speech in {took_seconds:.1f} s: real-time factor {took_seconds / SPOKEN_SECONDS:.2f}")
    print(answer.text)
    assert all(words in answer.text.lower() for words in KEY_WORDS), answer.text
    assert (answer.language, round(answer.duration, 1)) == ("en", SPOKEN_SECONDS)
    assert answer.segments is not None
    assert answer.words is not None
    assert "".join(segment.text for segment in answer.segments).strip() == answer.text
    assert [word.word for word in answer.words] == answer.text.split()
    times = [moment for word in answer.words for moment in (word.start, word.end)]
    assert times == sorted(times)
    assert times[-1] <= SPOKEN_SECONDS + 1


def test_a_stream_says_the_same_in_pieces(client: openai.OpenAI) -> None:
    events = list(client.audio.transcriptions.create(model="whisper", file=SPOKEN, stream=True))
    *pieces, done = events
    assert done.type == "transcript.text.done"
    assert "".join(piece.delta for piece in pieces if piece.type == "transcript.text.delta").strip() == done.text
    assert all(words in done.text.lower() for words in KEY_WORDS), done.text


def test_subtitles_and_plain_text(client: openai.OpenAI) -> None:
    srt, vtt, text = (
        client.audio.transcriptions.create(model="whisper", file=SPOKEN, response_format=kind)  # type: ignore[call-overload]
        for kind in ("srt", "vtt", "text")
    )
    assert srt.startswith("1\n00:00:00,")
    assert vtt.startswith("WEBVTT\n\n00:00:00.")
    assert all(words in text.lower() for words in KEY_WORDS), text


def test_what_is_no_speech_makes_no_error(client: openai.OpenAI) -> None:
    assert client.audio.transcriptions.create(model="whisper", file=("tone.wav", sound(0.05))).usage is not None


def test_several_clients_at_once_lose_nothing(daemon: Daemon, client: openai.OpenAI) -> None:
    def transcript(_: int) -> str:
        return client.audio.transcriptions.create(model="whisper", file=SPOKEN).text

    def chat(_: int) -> int:
        body = {"model": "text", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
        return httpx.post(f"{daemon.url}/v1/chat/completions", json=body, timeout=WAIT_SECONDS).status_code

    with ThreadPoolExecutor(8) as pool:
        texts, statuses = pool.map(transcript, range(3)), pool.map(chat, range(5))
        assert list(statuses) == [200] * 5
        assert all("lazy dog" in text for text in texts)
    daemon.wait_for(lambda: daemon.health()["running_requests"] == 0)


def test_each_kind_is_refused_what_it_is_not_for(daemon: Daemon, client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "x"}]
    refusals = []
    for call in (
        lambda: client.chat.completions.create(model="whisper", messages=messages),  # type: ignore[arg-type]
        lambda: client.completions.create(model="whisper", prompt="x"),
        lambda: client.responses.create(model="whisper", input="x"),
        lambda: client.embeddings.create(model="whisper", input="x"),
        lambda: client.audio.transcriptions.create(model="text", file=SPOKEN),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            call()
        refusals.append((refused.value.code, refused.value.param))
    assert refusals == [("unsupported_parameter", "model")] * len(refusals)
    form = {"data": {"model": "whisper"}, "files": {"file": SPOKEN.read_bytes()}}
    answer = httpx.post(f"{daemon.url}/v1/audio/translations", **form)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    with (
        anthropic.Anthropic(base_url=daemon.url, api_key="none", max_retries=0) as other,
        pytest.raises(anthropic.BadRequestError, match="transcribes speech"),
    ):
        other.messages.create(model="whisper", max_tokens=1, messages=messages)  # type: ignore[arg-type]


def test_a_text_model_refuses_media_parts_by_their_index(daemon: Daemon) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    speech = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    film = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    for part in (picture, speech, film):
        content = [{"type": "text", "text": "x"}, part]
        answer = daemon.post(
            "/v1/chat/completions", {"model": "text", "messages": [{"role": "user", "content": content}]}
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "unsupported_modality")
        assert error["param"] == "messages[0].content[1]"
    parts = [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]
    answer = daemon.post("/v1/responses", {"model": "text", "input": [{"role": "user", "content": parts}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[0].content[1]")
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    blocks = [{"type": "text", "text": "x"}, {"type": "image", "source": source}]
    answer = daemon.post(
        "/v1/messages", {"model": "text", "max_tokens": 1, "messages": [{"role": "user", "content": blocks}]}
    )
    assert answer.status_code == 400
    assert "messages[0].content[1]" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"#EXTM3U\nhttp://127.0.0.1/x.wav\n", "file must be flac, mp3"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "file must be flac, mp3"),
        (b"", "file must be flac, mp3"),
        (b"RIFF\x00\x00\x00\x00WAVE" + bytes(64), "file"),
        (b"OggS" + bytes(4096), "file"),
        (SPOKEN.read_bytes()[:60], "file"),
    ],
)
def test_what_is_no_sound_is_the_clients_error(
    daemon: Daemon, client: openai.OpenAI, content: bytes, says: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.transcriptions.create(model="whisper", file=("x.wav", content), stream=True)
    assert refused.value.param == "file"
    assert says in str(refused.value)
    assert daemon.health()["models"]["whisper"]["state"] == "ready"


def test_forms_are_checked_field_by_field(daemon: Daemon) -> None:
    def refusal(**fields: str) -> tuple[int, str | None]:
        answer = httpx.post(
            f"{daemon.url}/v1/audio/transcriptions",
            data={"model": "whisper", **fields},
            files={"file": ("x.ogg", SPOKEN.read_bytes())},
        )
        return answer.status_code, answer.json()["error"]["param"]

    assert refusal(temperature="warm") == (400, "temperature")
    assert refusal(temperature="3") == (400, "temperature")
    assert refusal(language="de") == (400, "language")
    assert refusal(response_format="docx") == (400, "response_format")
    assert refusal(stream="true", response_format="srt") == (400, "response_format")
    assert refusal(**{"timestamp_granularities[]": "word"}) == (400, "timestamp_granularities")
    assert refusal(**{"include[]": "logprobs"}) == (400, "include")
    assert refusal(nonsense="1") == (400, "nonsense")
    assert refusal(model="no-such-model") == (404, "model")


def test_files_that_are_too_large_or_no_form_are_refused_early(daemon: Daemon) -> None:
    url = f"{daemon.url}/v1/audio/transcriptions"
    large = httpx.post(url, data={"model": "whisper"}, files={"file": ("x.wav", bytes(26 * 2**20))})
    assert large.status_code == 413
    assert httpx.post(url, json={"model": "whisper"}).status_code == 415
    kind = {"content-type": "multipart/form-data; boundary=x"}
    for body in (
        b"",
        b"--x\r\n",
        b"nothing of the kind",
        b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nA',
    ):
        assert httpx.post(url, content=body, headers=kind).status_code == 400
    assert httpx.post(url, data={"model": "whisper"}, files={"other": b"x"}).status_code == 400


def test_a_client_that_leaves_frees_its_place(daemon: Daemon) -> None:
    with pytest.raises(httpx.TimeoutException):
        httpx.post(
            f"{daemon.url}/v1/audio/transcriptions",
            data={"model": "whisper"},
            files={"file": ("x.wav", sound(120))},
            timeout=httpx.Timeout(WAIT_SECONDS, read=0.5),
        )
    daemon.wait_for(lambda: daemon.health()["running_requests"] == 0, WAIT_SECONDS)
    assert daemon.health()["models"]["whisper"]["state"] == "ready"


def test_the_model_list_says_what_a_model_hears(daemon: Daemon) -> None:
    shown = daemon.get("/v1/models/whisper").json()["edgellm"]
    assert (shown["kind"], shown["input_modalities"], shown["languages"]) == ("asr", ["audio"], ["en"])
    assert daemon.get("/v1/models/text").json()["edgellm"]["kind"] == "chat"
