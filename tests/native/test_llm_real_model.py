"""LLM over the model of a fresh machine: answers that make sense, turns that are cheap, a server of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.models.real_model import smollm2_file
from tests.unit.runtime.waiting import wait_until

from edgellm import LLM, SamplingParams

pytestmark = pytest.mark.model

SERVE_PROGRAM = """
import logging, sys
logging.basicConfig(level=logging.INFO)
from edgellm import LLM
LLM(sys.argv[1], cache_dir=sys.argv[2], threads=1, runtime="native").serve(port=int(sys.argv[3]))
print("closed", flush=True)
"""


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def llm(cache_dir: Path) -> Iterator[LLM]:
    with LLM(str(smollm2_file()), cache_dir=str(cache_dir), runtime="native") as loaded:
        yield loaded


def test_answers_are_about_the_question(llm: LLM) -> None:
    # Asked so that the model's four-bit weights know it for certain, and not by how activations happen to be rounded.
    outputs = llm.generate(
        ["Name the capital of France.", "How many days has a week?"], SamplingParams(temperature=0, max_tokens=48)
    )
    assert "Paris" in outputs[0].text
    assert any(word in outputs[1].text.lower() for word in ("seven", "7"))
    assert [output.finish_reason for output in outputs] == ["stop", "stop"]


def test_a_following_turn_takes_the_conversation_from_the_cache(llm: LLM) -> None:
    story = "The river was calm that morning and the boats had not left yet. " * 60
    turns = [{"role": "user", "content": f"{story} How was the river?"}]
    first = llm.chat(turns, SamplingParams(temperature=0, max_tokens=16))
    turns += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And the boats?"}]
    second = llm.chat(turns, SamplingParams(temperature=0, max_tokens=4))
    assert first.prompt_tokens is not None
    assert second.cached_tokens is not None
    assert first.prompt_tokens > 800
    assert second.cached_tokens >= first.prompt_tokens * 0.95


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_serve_answers_until_it_is_interrupted_and_then_closes(cache_dir: Path) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE_PROGRAM, str(smollm2_file()), str(cache_dir), str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, process.stderr and process.stderr.read()
        try:
            return httpx.get(f"{url}/health/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(ready)
        body = {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4, "temperature": 0}
        completion = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).json()
        assert completion["model"] == smollm2_file().stem
        assert completion["usage"]["completion_tokens"] <= 4
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, "closed\n"), errors  # what it says goes to the log
        assert f"INFO:edgellm.service.model_server:edgellm: listening on {url}\n" in errors
    finally:
        process.kill()
        process.communicate()
