"""Speech over HTTP: when the first sound comes, how much faster than its own length it is made and heard."""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
from PIL import Image
from tests.bench.http_comparison import Finding
from tests.bench.statistics_of_rounds import Spread
from tests.http.daemon_process import Daemon
from tests.http.speaking_daemon import WAIT_SECONDS, speaking_daemon, voice_file, whisper_folder
from tests.models.real_model import smollm2_file
from tests.models.tiny_vision import VISION_VARIANTS, write_vision_checkpoint

RATE_HZ = 24_000
SAMPLE_BYTES = 2
SHORT = "The light is on."
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Please open the window and turn on the light.",
    "The weather is very nice today.",
    "We will meet again at the station in the morning.",
    "She sells fresh bread and butter at the market.",
)
TEXT = " ".join(SENTENCES)
LONG_TEXT = " ".join(SENTENCES * 4)
CLIENTS = 8


@contextmanager
def speech_daemon(folder: Path) -> Iterator[Daemon]:
    sources = {
        "chat": smollm2_file(),
        "whisper": whisper_folder(),
        "voice": voice_file(),
        "vision": write_vision_checkpoint(folder / "vision", VISION_VARIANTS["smolvlm"]),
    }
    with speaking_daemon(folder, sources, settings="") as daemon:
        yield daemon


def spoken(daemon: Daemon, text: str, response_format: str = "pcm") -> tuple[float, float, bytes]:
    """Seconds to the first sound and to the last, and all of it."""
    body = {"model": "voice", "input": text, "response_format": response_format}
    begun = time.monotonic()
    with httpx.stream("POST", f"{daemon.url}/v1/audio/speech", json=body, timeout=WAIT_SECONDS) as answer:
        answer.raise_for_status()
        pieces = answer.iter_raw()
        first = next(pieces)
        first_seconds = time.monotonic() - begun
        rest = b"".join(pieces)
    return first_seconds, time.monotonic() - begun, first + rest


def heard(daemon: Daemon, wav: bytes) -> float:
    """Seconds to the whole transcript."""
    begun = time.monotonic()
    answer = httpx.post(
        f"{daemon.url}/v1/audio/transcriptions",
        data={"model": "whisper"},
        files={"file": ("said.wav", wav)},
        timeout=WAIT_SECONDS,
    )
    answer.raise_for_status()
    return time.monotonic() - begun


def noise_image(seed: int) -> str:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (480, 640, 3), np.uint8)
    Image.fromarray(pixels).save(file, "jpeg")
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def seconds_of(pcm: bytes) -> float:
    return len(pcm) / SAMPLE_BYTES / RATE_HZ


def measure_speech_alone(daemon: Daemon, rounds: int) -> list[Finding]:
    first_of_short, first_of_long, factor, factor_of_mp3, factor_of_hearing = [], [], [], [], []
    spoken(daemon, SHORT)  # the first request of a process pays for its libraries
    heard(daemon, spoken(daemon, SHORT, "wav")[2])
    for _ in range(rounds):
        first_of_short.append(1000 * spoken(daemon, SHORT)[0])
        first_seconds, all_seconds, pcm = spoken(daemon, LONG_TEXT)
        first_of_long.append(1000 * first_seconds)
        factor.append(all_seconds / seconds_of(pcm))
        # The length of another saying of the same text: it differs by a few percent.
        factor_of_mp3.append(spoken(daemon, LONG_TEXT, "mp3")[1] / seconds_of(pcm))
        wav = spoken(daemon, TEXT, "wav")[2]
        factor_of_hearing.append(heard(daemon, wav) / seconds_of(wav))
    return [
        finding(f'first sound of "{SHORT}"', first_of_short, "ms", 0),
        finding(f"first sound of {len(LONG_TEXT)} characters", first_of_long, "ms", 0),
        finding("speech, pcm: time over length of sound", factor, "", 3),
        finding("speech, mp3: time over length of sound", factor_of_mp3, "", 3),
        finding("transcription: time over length of sound", factor_of_hearing, "", 3),
    ]


def measure_mixed_clients(daemon: Daemon, rounds: int) -> list[Finding]:
    """Eight at once: two chats, two images, two texts to speak, two files to hear. A failure of one ends the run."""
    wav = spoken(daemon, SENTENCES[0], "wav")[2]
    seeds = iter(range(1_000_000))

    def image() -> float:
        """To a tiny model: what is measured is the way there, and an image that was never seen before."""
        part = {"type": "image_url", "image_url": {"url": noise_image(next(seeds))}}
        body = {"model": "vision", "messages": [{"role": "user", "content": [part]}], "max_tokens": 8}
        begun = time.monotonic()
        httpx.post(f"{daemon.url}/v1/chat/completions", json=body, timeout=WAIT_SECONDS).raise_for_status()
        return time.monotonic() - begun

    def chat() -> float:
        body = {"model": "chat", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 32}
        begun = time.monotonic()
        httpx.post(f"{daemon.url}/v1/chat/completions", json=body, timeout=WAIT_SECONDS).raise_for_status()
        return time.monotonic() - begun

    work: dict[str, Callable[[], float]] = {
        "chat, 32 tokens": chat,
        "image of 0.3 megapixels, 8 tokens of a tiny model": image,
        "speech, to the first sound": lambda: spoken(daemon, TEXT)[0],
        "transcription": lambda: heard(daemon, wav),
    }
    names = [list(work)[number % len(work)] for number in range(CLIENTS)]
    took: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        together = threading.Barrier(CLIENTS)

        def timed(name: str, together: threading.Barrier = together) -> float:
            together.wait(WAIT_SECONDS)
            return work[name]()

        with ThreadPoolExecutor(CLIENTS) as pool:
            for name, took_seconds in zip(names, pool.map(timed, names), strict=True):
                took[name].append(took_seconds)
    return [finding(f"8 clients at once: {name}", seconds, "s", 2) for name, seconds in took.items()]


def finding(measure: str, values: list[float], unit: str, digits: int) -> Finding:
    return Finding(measure, Spread.of(values), unit, digits, "", None)
