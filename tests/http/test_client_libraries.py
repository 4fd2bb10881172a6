"""Client libraries as their users use them, against the real daemon, with no network but loopback."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from tests.http.daemon_process import Daemon
from tests.http.loopback_only import LoopbackOnly, why_not

PROGRAMS = {
    "langchain_chat": "langchain_openai",
    "litellm_calls": "litellm",
    "openai_agents": "agents",
    "pydantic_agents": "pydantic_ai",
}
"""Programs of ``tests.http.clients``, each with the package it needs."""
PROGRAM_DEADLINE_SECONDS = 300.0
REPOSITORY = Path(__file__).parents[2]


def skip(reason: str) -> NoReturn:
    """A developer's machine may lack what these tests need; the gate's has it all."""
    assert "EDGELLM_CI" not in os.environ, reason
    pytest.skip(reason)


@pytest.fixture(scope="module")
def network() -> Iterator[LoopbackOnly]:
    reason = why_not()
    if reason is not None:
        skip(reason)
    made = LoopbackOnly()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def isolated_daemon(network: LoopbackOnly, model_source: Path) -> Iterator[Daemon]:
    started = Daemon(model_source, within=network.inside)
    try:
        assert started.url
        started.wait_for(lambda: "edgellm: ready after" in started.log)  # from here it cannot be asked
        yield started
    finally:
        started.stop()


def test_there_is_no_network_but_loopback(network: LoopbackOnly) -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    outside = subprocess.run(network.inside([sys.executable, "-c", code]), capture_output=True, text=True, check=False)
    assert "Network is unreachable" in outside.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_client_library_is_served(
    program: str, network: LoopbackOnly, isolated_daemon: Daemon, tmp_path: Path
) -> None:
    if importlib.util.find_spec(PROGRAMS[program]) is None:
        skip(f"{PROGRAMS[program]} is not installed: sh daemon/setup/run clients")
    command = [sys.executable, "-m", f"tests.http.clients.{program}", isolated_daemon.url]
    home = {"HOME": str(tmp_path), "OPENAI_AGENTS_DISABLE_TRACING": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        network.inside(command),
        cwd=REPOSITORY,
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=PROGRAM_DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{isolated_daemon.log}"
