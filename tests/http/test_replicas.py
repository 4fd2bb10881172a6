"""Two replicas of one model: a conversation's next turn goes where its first was computed."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.http.conftest import StartDaemon
from tests.http.daemon_process import MODEL, Daemon
from tests.http.test_worker_loss import worker_pids

from edgellm.errors import ForcedShutdownError


def turn(daemon: Daemon, messages: list[dict[str, str]]) -> dict[str, Any]:
    body = {"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0}
    answer = daemon.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    whole: dict[str, Any] = answer.json()
    return whole


def test_the_second_turn_of_every_conversation_finds_the_first(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--replicas", "2", "--max-kv-cache-capacity", "1024")
    assert len(worker_pids(daemon)) == 2
    for number in range(6):
        asked = [{"role": "user", "content": f"Conversation {number}: name {number + 3} rivers, one a line. " * 8}]
        first = turn(daemon, asked)
        asked.append({"role": "assistant", "content": first["choices"][0]["message"]["content"]})
        asked.append({"role": "user", "content": "And three more?"})
        second = turn(daemon, asked)
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= first["usage"]["prompt_tokens"] // 32 * 32, f"conversation {number}: {cached}"
    steps = [lane["steps_completed"] for lane in daemon.model_health()["lanes"]]
    print(f"steps of the lanes: {steps}")


def test_a_worker_that_does_not_end_is_killed_and_the_exit_code_tells(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    (worker,) = worker_pids(daemon)
    os.kill(worker, signal.SIGSTOP)
    daemon.terminate()
    assert daemon.exit_code() == ForcedShutdownError.exit_code
    assert "0 request(s) cut short, 1 worker(s) killed" in daemon.log
