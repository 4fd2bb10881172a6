"""Text through the openai client to speech, from a daemon with a voice beside a text model and a Whisper model."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.http.daemon_process import Daemon
from tests.http.speaking_daemon import (
    PATIENT,
    SPEAKS,
    WAIT_SECONDS,
    require_extras,
    speaking_daemon,
    voice_file,
    whisper_folder,
)
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint

from edgellm.service.greeting import how_to_speak

require_extras(SPEAKS)

RATE_HZ = 24_000
SAMPLE_BYTES = 2
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Please open the window and turn on the light.",
    "The weather is very nice today.",
    "We will meet again at the station in the morning.",
    "She sells fresh bread and butter at the market.",
)
TEXT = " ".join(SENTENCES)
LONG_TEXT = " ".join(SENTENCES * 8)
# Its authors give tiny.en 6 errors in 100 words of clear reading, and 15 of harder; a made voice, which says a text
# somewhat otherwise each time, gets 20. A voice that cannot be understood has far more.
WORD_ERROR_RATE_MAX = 0.2
# Encoders add up to a frame before and after, and what their window needs.
CODEC_SECONDS = 0.15


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("speech")
    text = write_checkpoint(folder / "model", replace(VARIANTS["llama"], context_length=96))
    voice = voice_file()
    sources = {"text": text, "whisper": whisper_folder(), "voice": voice, "later": voice.parent}
    models = {name: "threads = 1\n" for name in sources if name != "text"}
    models["later"] += 'residency = "on_demand"\n'
    settings = f'{PATIENT}[records]\nfile = "{folder}/records.jsonl"\n'
    with speaking_daemon(folder, sources, settings=settings, models=models) as started:
        yield started


@pytest.fixture
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0, timeout=WAIT_SECONDS) as made:
        yield made


def speech(client: openai.OpenAI, text: str = TEXT, response_format: str = "pcm", speed: float = 1.0) -> bytes:
    return client.audio.speech.create(
        model="voice",
        voice="joe",
        input=text,
        response_format=response_format,  # type: ignore[arg-type]
        speed=speed,
    ).read()


def seconds_of_pcm(sound: bytes) -> float:
    assert len(sound) % SAMPLE_BYTES == 0
    return len(sound) / SAMPLE_BYTES / RATE_HZ


def decoded(sound: bytes) -> tuple[str, int, int, float]:
    """Codec, rate in Hz, channels and seconds, all of it decoded."""
    import av

    with av.open(io.BytesIO(sound)) as opened:
        track = opened.streams.audio[0]
        samples = sum(frame.samples for frame in opened.decode(track))
        return track.codec_context.name, track.rate, track.channels, samples / track.rate


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def word_error_rate(said: str, heard: str) -> float:
    """Words that were changed, left out or added, by the words that were said."""
    wanted, got = words_of(said), words_of(heard)
    row = list(range(len(got) + 1))
    for number, word in enumerate(wanted, 1):
        above, row[0] = row[0], number
        for at, other in enumerate(got, 1):
            above, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, above + (word != other))
    return row[-1] / len(wanted)


def worker_pids(daemon: Daemon) -> dict[str, int]:
    """Process ids of workers, by the library that only they load."""
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()
    return {_kind(int(pid)): int(pid) for pid in children}


def _kind(pid: int) -> str:
    maps = Path(f"/proc/{pid}/maps").read_text()
    return "voice" if "espeakbridge" in maps else "whisper" if "ctranslate2" in maps.lower() else "other"


def test_what_is_said_is_heard(client: openai.OpenAI) -> None:
    begun = time.monotonic()
    sound = speech(client, response_format="wav")
    spoken_seconds = time.monotonic() - begun
    begun = time.monotonic()
    heard = client.audio.transcriptions.create(model="whisper", file=("said.wav", sound), language="en").text
    heard_seconds = time.monotonic() - begun
    duration_seconds = decoded(sound)[3]
    rate = word_error_rate(TEXT, heard)
    print(
        f"{duration_seconds:.1f} s of speech: made in {spoken_seconds:.1f} s, heard in {heard_seconds:.1f} s, "
        f"word error rate {rate:.3f}\n{heard}"
    )
    assert rate <= WORD_ERROR_RATE_MAX, heard


@pytest.mark.parametrize(
    ("response_format", "codec", "rate_hz"),
    [
        ("mp3", "mp3float", RATE_HZ),
        ("opus", "opus", 48_000),  # the clock of every Opus file
        ("aac", "aac", RATE_HZ),
        ("flac", "flac", RATE_HZ),
        ("wav", "pcm_s16le", RATE_HZ),
    ],
)
def test_every_format_is_what_it_says_and_as_long_as_the_speech(
    client: openai.OpenAI, response_format: str, codec: str, rate_hz: int
) -> None:
    answer = client.audio.speech.with_raw_response.create(
        model="voice",
        voice="joe",
        input=SENTENCES[0],
        response_format=response_format,  # type: ignore[arg-type]
    )
    name, rate, channels, duration_seconds = decoded(answer.content)
    assert (name, rate, channels) == (codec, rate_hz, 1)
    assert answer.headers["content-type"].startswith("audio/")
    assert answer.headers["x-sample-rate"] == str(RATE_HZ)
    # The voice takes a little more or less time each time it says something.
    spoken_seconds = seconds_of_pcm(speech(client, SENTENCES[0]))
    assert abs(duration_seconds - spoken_seconds) <= CODEC_SECONDS + 0.25 * spoken_seconds


def test_a_wav_file_is_read_by_the_standard_library(client: openai.OpenAI) -> None:
    sound = speech(client, SENTENCES[0], "wav")
    with wave.open(io.BytesIO(sound)) as opened:
        assert (opened.getframerate(), opened.getnchannels(), opened.getsampwidth()) == (RATE_HZ, 1, SAMPLE_BYTES)
        samples = opened.readframes(opened.getnframes())
    assert samples == sound[44:]
    assert seconds_of_pcm(samples) > 1


def test_twice_as_fast_is_half_as_long(client: openai.OpenAI) -> None:
    slow, plain, fast = (seconds_of_pcm(speech(client, TEXT, speed=speed)) for speed in (0.5, 1.0, 2.0))
    assert 1.5 < slow / plain < 2.5
    assert 1.5 < plain / fast < 2.5


def test_the_first_sound_comes_before_the_last_is_made(daemon: Daemon, client: openai.OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="voice", voice="joe", input=LONG_TEXT, response_format="pcm"
    ) as streamed:
        pieces = streamed.iter_bytes()
        first = next(pieces)
        assert daemon.health()["running_requests"] == 1
        rest = b"".join(pieces)
    sound_seconds = seconds_of_pcm(first + rest)
    assert sound_seconds > 30
    assert len(first) < len(first + rest) / 4


def test_a_short_speech_does_not_wait_for_a_long_one(daemon: Daemon, client: openai.OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="voice", voice="joe", input=LONG_TEXT, response_format="pcm"
    ) as streamed:
        pieces = streamed.iter_bytes()
        next(pieces)
        assert seconds_of_pcm(speech(client, SENTENCES[0])) > 1
        assert daemon.health()["running_requests"] == 1, "the long one was over before"
        assert b"".join(pieces)


def test_events_say_the_same_and_how_much(daemon: Daemon) -> None:
    body = {"model": "voice", "input": TEXT, "voice": "joe", "response_format": "pcm", "stream_format": "sse"}
    answer = daemon.post("/v1/audio/speech", body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: ")]
    *sounds, done = events
    assert len(sounds) >= len(SENTENCES)
    duration_seconds = seconds_of_pcm(b"".join(base64.b64decode(event["audio"]) for event in sounds))
    assert duration_seconds > 5
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["input_tokens"] > len(TEXT)
    assert done["usage"]["output_tokens"] == pytest.approx(duration_seconds * 22_050 / 256, rel=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "Ring the bell \x00\x07\x1b[0m now.",
        "Das Wetter ist schön, nicht wahr?",
        "你好，世界。 Привет, мир.",  # noqa: RUF001  # the comma of its language
        "😀",
        "x",
        "3.14159 is about pi, said Mr. Smith [[of]] <b>Main St.</b>",
    ],
)
def test_whatever_the_text_it_is_said_as_it_stands(client: openai.OpenAI, text: str) -> None:
    assert seconds_of_pcm(speech(client, text)) > 0.1


@pytest.mark.parametrize("text", ["", "   \n", "\x00\x00", "...", "—", "\u200b"])
def test_what_cannot_be_said_is_refused_before_anything_is_sent(client: openai.OpenAI, text: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        speech(client, text)
    assert refused.value.param == "input"


def test_the_longest_input_is_taken_and_a_longer_one_refused(daemon: Daemon, client: openai.OpenAI) -> None:
    longest = ("word " * 1000)[:4096].ljust(4096, "x")
    with client.audio.speech.with_streaming_response.create(
        model="voice", voice="joe", input=longest, response_format="pcm", speed=4.0
    ) as streamed:
        assert next(streamed.iter_bytes())
    with pytest.raises(openai.BadRequestError) as refused:
        speech(client, longest + "x")
    assert refused.value.param == "input"
    daemon.wait_for(lambda: daemon.health()["running_requests"] == 0, WAIT_SECONDS)


def test_a_client_that_leaves_frees_the_voice(daemon: Daemon, client: openai.OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="voice", voice="joe", input=LONG_TEXT, response_format="pcm"
    ) as streamed:
        next(streamed.iter_bytes())
    daemon.wait_for(lambda: daemon.health()["running_requests"] == 0, WAIT_SECONDS)
    record = json.loads(records(daemon).read_text().splitlines()[-1])
    assert (record["route"], record["outcome"]) == ("/v1/audio/speech", "disconnected")
    assert speech(client, SENTENCES[0])


def test_a_client_that_does_not_read_holds_up_nobody(daemon: Daemon, client: openai.OpenAI) -> None:
    body = json.dumps({"model": "voice", "input": LONG_TEXT, "response_format": "pcm", "speed": 4.0}).encode()
    with socket.socket() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect(daemon.address)
        head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        idle.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        daemon.wait_for(lambda: daemon.health()["running_requests"] == 1, WAIT_SECONDS)
        assert seconds_of_pcm(speech(client, SENTENCES[0])) > 1
        daemon.wait_for(lambda: daemon.health()["running_requests"] == 0, WAIT_SECONDS)
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            piece = idle.recv(1 << 16)
            assert piece, "the answer was cut"
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200")
    assert len(answer) > 10 * RATE_HZ * SAMPLE_BYTES


def records(daemon: Daemon) -> Path:
    command = daemon.process.args
    assert isinstance(command, list)
    return Path(command[command.index("--config") + 1]).with_name("records.jsonl")


def test_piper_is_in_the_voice_s_worker_and_never_in_the_daemon(daemon: Daemon, client: openai.OpenAI) -> None:
    assert speech(client, SENTENCES[0])
    daemon_maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
    for library in ("espeakbridge", "onnxruntime"):
        assert library not in daemon_maps
    for pid in worker_pids(daemon).values():
        has_piper = "espeakbridge" in Path(f"/proc/{pid}/maps").read_text()
        assert has_piper == (pid == worker_pids(daemon)["voice"])


def test_a_worker_that_is_killed_ends_the_speech_clearly_and_comes_back(daemon: Daemon, client: openai.OpenAI) -> None:
    for stream_format in ("audio", "sse"):
        body = {"model": "voice", "input": LONG_TEXT, "response_format": "pcm", "stream_format": stream_format}
        with httpx.stream("POST", f"{daemon.url}/v1/audio/speech", json=body, timeout=WAIT_SECONDS) as streamed:
            assert streamed.status_code == 200
            pieces = streamed.iter_bytes()
            got = next(pieces)
            os.kill(worker_pids(daemon)["voice"], signal.SIGKILL)
            if stream_format == "sse":
                got += b"".join(pieces)
                last = json.loads(got.decode().rstrip().rpartition("data: ")[2])
                assert last["error"]["code"] == "worker_failed"
            else:
                with pytest.raises(httpx.RemoteProtocolError):
                    list(pieces)
        daemon.wait_for(lambda: daemon.health()["models"]["voice"]["state"] == "ready", WAIT_SECONDS)
        assert seconds_of_pcm(speech(client, SENTENCES[0])) > 1


@settings(max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=40) | st.text("<>[](){}&;\\/'\"_^|#.,!?0123456789 aé世", max_size=80))
def test_no_text_breaks_the_voice(daemon: Daemon, text: str) -> None:
    worker = worker_pids(daemon)["voice"]
    body = {"model": "voice", "input": text, "response_format": "pcm", "speed": 4.0}
    answer = daemon.post("/v1/audio/speech", body)
    if answer.status_code == 200:
        assert answer.content
    else:
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
    assert worker_pids(daemon)["voice"] == worker


def test_the_line_that_is_printed_works(daemon: Daemon) -> None:
    line = how_to_speak(f"{daemon.url}/v1", "voice", with_key=False).partition("curl    ")[2]
    words = shlex.split(line)
    name, _, value = words[words.index("-H") + 1].partition(": ")
    answer = httpx.post(words[1], content=words[words.index("-d") + 1], headers={name: value}, timeout=WAIT_SECONDS)
    assert answer.status_code == 200
    assert decoded(answer.content)[0] == "mp3float"
    assert words[-1] == "speech.mp3"


def test_each_kind_is_refused_what_it_is_not_for(daemon: Daemon, client: openai.OpenAI) -> None:
    for model in ("text", "whisper"):
        with pytest.raises(openai.BadRequestError, match="does not speak"):
            client.audio.speech.create(model=model, voice="joe", input="x")
    with pytest.raises(openai.BadRequestError, match="transcribes no speech"):
        client.audio.transcriptions.create(model="voice", file=("x.wav", b"RIFF"))
    with pytest.raises(openai.BadRequestError, match="makes no text"):
        client.chat.completions.create(model="voice", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.speech.create(model="voice", voice="alloy", input="x")
    assert "joe" in str(refused.value)


def test_the_lists_say_who_speaks(daemon: Daemon) -> None:
    voices = daemon.get("/v1/voices").json()["data"]
    assert [voice for voice in voices if voice["model"] == "voice"] == [
        {"id": "joe", "object": "voice", "model": "voice", "language": "en_US"}
    ]
    shown = daemon.get("/v1/models/voice").json()["edgellm"]
    assert (shown["kind"], shown["voices"], shown["output_modalities"]) == ("tts", ["joe"], ["audio"])


def test_a_voice_on_demand_is_loaded_when_it_is_asked_for(daemon: Daemon, client: openai.OpenAI) -> None:
    assert daemon.health()["models"]["later"]["state"] == "unloaded"
    answer = client.audio.speech.create(model="later", voice="joe", input="Yes.", response_format="pcm")
    assert seconds_of_pcm(answer.read()) > 0.1
    assert daemon.health()["models"]["later"]["state"] == "ready"
    assert [voice["model"] for voice in daemon.get("/v1/voices").json()["data"]] == ["voice", "later"]


def test_a_voice_of_a_process_of_yours_serves_speech_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = f"from edgellm import TTS; TTS('voice', threads=1).serve(port={port}, served_model_name='mine')"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not _is_ready(url):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        spoken = {"model": "mine", "input": "Yes.", "response_format": "pcm"}
        assert seconds_of_pcm(httpx.post(f"{url}/v1/audio/speech", json=spoken, timeout=WAIT_SECONDS).content) > 0.1
        chat = {"model": "mine", "messages": [{"role": "user", "content": "x"}]}
        refused = httpx.post(f"{url}/v1/chat/completions", json=chat)
        assert refused.status_code == 400
        assert "speaks" in refused.json()["error"]["message"]
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_eight_clients_of_every_kind_at_once_lose_nothing(daemon: Daemon, client: openai.OpenAI) -> None:
    sound = speech(client, SENTENCES[0], "wav")
    together = threading.Barrier(8)

    def chat() -> str:
        body = {"model": "text", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
        assert daemon.post("/v1/chat/completions", body).status_code == 200
        return "chat"

    def speak() -> str:
        assert seconds_of_pcm(speech(client, TEXT)) > 5
        return "speech"

    def transcribe() -> str:
        heard = client.audio.transcriptions.create(model="whisper", file=("said.wav", sound)).text
        assert word_error_rate(SENTENCES[0], heard) <= 0.5, heard
        return "transcription"

    def timed(number: int) -> tuple[str, float]:
        together.wait(WAIT_SECONDS)
        begun = time.monotonic()
        return (chat, speak, transcribe)[number % 3](), time.monotonic() - begun

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(timed, range(8)))
    print(", ".join(f"{kind} {took_seconds:.1f} s" for kind, took_seconds in sorted(done)))
    assert sorted(kind for kind, _ in done) == ["chat"] * 3 + ["speech"] * 3 + ["transcription"] * 2
    daemon.wait_for(lambda: daemon.health()["running_requests"] == 0, WAIT_SECONDS)


def test_no_log_line_quotes_what_was_said(daemon: Daemon, client: openai.OpenAI) -> None:
    speech(client, "Zanzibar \x01 你好 ɧɧ [[zanzibar]]")
    assert "anzibar" not in daemon.log
    assert "phoneme" not in daemon.log.lower()
