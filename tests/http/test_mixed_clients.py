"""Clients of every kind at once on one daemon: chats, images, speech and transcription. Nothing is lost or mixed up."""

from __future__ import annotations

import base64
import io
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from tests.http.daemon_process import Daemon
from tests.http.speaking_daemon import (
    SPEAKS,
    WAIT_SECONDS,
    require_extras,
    speaking_daemon,
    voice_file,
    whisper_folder,
)
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_vision import VISION_VARIANTS, write_vision_checkpoint

require_extras(SPEAKS)

CLIENTS = 8
ROUNDS = 2
SENTENCE = "Please open the window and turn on the light."


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("mixed")
    sources = {
        "text": write_checkpoint(folder / "text", replace(VARIANTS["llama"], context_length=512)),
        "vision": write_vision_checkpoint(folder / "vision", VISION_VARIANTS["smolvlm"]),
        "whisper": whisper_folder(),
        "voice": voice_file(),
    }
    with speaking_daemon(folder, sources, models=dict.fromkeys(("whisper", "voice"), "threads = 1\n")) as started:
        yield started


def image_url(seed: int) -> str:
    file = io.BytesIO()
    Image.frombytes("RGB", (90, 70), random.Random(seed).randbytes(3 * 90 * 70)).save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def posted(daemon: Daemon, path: str, **body: Any) -> httpx.Response:
    answer = httpx.post(f"{daemon.url}{path}", timeout=WAIT_SECONDS, **body)
    answer.raise_for_status()
    return answer


def chatted(daemon: Daemon, model: str, *content: Any) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": list(content)}], "max_tokens": 8, "temperature": 0}
    text: str = posted(daemon, "/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    return text


def test_eight_clients_of_every_kind_at_once(daemon: Daemon) -> None:
    def said() -> bytes:
        body = {"model": "voice", "input": SENTENCE, "response_format": "wav"}
        return posted(daemon, "/v1/audio/speech", json=body).content

    wav = said()

    def heard() -> str:
        form = {"data": {"model": "whisper"}, "files": {"file": ("said.wav", wav)}}
        text: str = posted(daemon, "/v1/audio/transcriptions", **form).json()["text"]
        return text

    def seen(seed: int) -> str:
        return chatted(daemon, "vision", {"type": "image_url", "image_url": {"url": image_url(seed)}}, "What?")

    # What each says when it is alone.
    transcript, text = heard(), chatted(daemon, "text", "Hello")
    images = {seed: seen(seed) for seed in (1, 2)}
    assert images[1] != images[2]
    checks: dict[str, Callable[[], bool]] = {
        "chat": lambda: chatted(daemon, "text", "Hello") == text,
        "image": lambda: seen(1) == images[1],
        "speech": lambda: len(said()) > len(wav) // 2,
        "transcription": lambda: heard() == transcript,
        "another image": lambda: seen(2) == images[2],
    }
    names = ["chat", "image", "speech", "transcription", "another image", "chat", "image", "speech"]
    assert len(names) == CLIENTS
    for _ in range(ROUNDS):
        together = threading.Barrier(CLIENTS)

        def at_once(name: str, together: threading.Barrier = together) -> tuple[bool, float]:
            together.wait(WAIT_SECONDS)
            begun = time.monotonic()
            return checks[name](), time.monotonic() - begun

        with ThreadPoolExecutor(CLIENTS) as pool:
            for name, (is_right, took_seconds) in zip(names, pool.map(at_once, names), strict=True):
                sys.stderr.write(f"{name}: {took_seconds:.2f} s\n")
                assert is_right, name
    metrics = daemon.get("/metrics").text
    for outcome in ("error", "refused", "disconnected", "saturated", "timed_out", "unavailable"):
        lines = [line for line in metrics.splitlines() if line.startswith('edgellm_requests_total{model="')]
        assert all(line.endswith(" 0.0") for line in lines if f'outcome="{outcome}"' in line), outcome
    assert Path(f"/proc/{daemon.process.pid}").exists()
