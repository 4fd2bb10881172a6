"""The model's worker dies under a real daemon: one request hears of it, the daemon and everybody else go on."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path

import httpx
import openai
import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import Daemon

LONG = "Count from one to two hundred."
ENDLESS = {"logit_bias": {"2": -100}}  # the token that ends an answer never comes


def worker_pids(daemon: Daemon) -> list[int]:
    """Processes that the daemon started."""
    children: list[int] = []
    for thread in Path(f"/proc/{daemon.process.pid}/task").iterdir():
        children += map(int, (thread / "children").read_text(encoding="ascii").split())
    return children


def metrics(daemon: Daemon) -> str:
    return httpx.get(f"{daemon.url}/metrics").text


def steps(daemon: Daemon) -> float:
    found = re.search(r"^edgellm_lane_steps\{.*\} (\S+)$", metrics(daemon), re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.fixture
def killable(start_daemon: StartDaemon) -> Daemon:
    return start_daemon()


def test_a_stream_whose_worker_dies_ends_with_an_error_and_the_next_request_is_served(killable: Daemon) -> None:
    with openai.OpenAI(base_url=f"{killable.url}/v1", api_key="none", max_retries=0) as client:
        messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": LONG}]
        stream = client.chat.completions.create(model="smollm2", messages=messages, max_tokens=2000, stream=True)
        taken = iter(stream)
        next(taken)
        (worker,) = worker_pids(killable)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(openai.APIError) as raised:
            for _ in taken:
                pass
        assert (raised.value.code, raised.value.message) == ("worker_failed", "The model's worker failed.")
        answer = client.chat.completions.create(model="smollm2", messages=messages, max_tokens=4)
        assert answer.choices[0].message.content
    killable.wait_for(killable.is_idle)
    assert killable.process.poll() is None
    assert worker_pids(killable) != [worker]
    assert 'outcome="error"} 1.0' in metrics(killable)
    assert 'edgellm_lanes_lost_total{model="smollm2"} 1.0' in metrics(killable)


def test_a_whole_answer_whose_worker_dies_is_a_502(killable: Daemon) -> None:
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(killable.chat(LONG, max_tokens=2000, **ENDLESS)))
    asking.start()
    at_rest = steps(killable)
    killable.wait_for(lambda: steps(killable) > at_rest + 5)  # it has said something, so that it does not run again
    os.kill(worker_pids(killable)[0], signal.SIGKILL)
    asking.join()
    assert answers[0].status_code == 502
    assert answers[0].json()["error"]["code"] == "worker_failed"
    killable.still_serves()


def test_readiness_is_taken_back_while_the_only_worker_is_away(killable: Daemon) -> None:
    os.kill(worker_pids(killable)[0], signal.SIGKILL)
    killable.wait_for(lambda: killable.model_health()["state"] == "loading")
    killable.wait_for(lambda: killable.model_health()["state"] == "ready")
    killable.still_serves()


def test_a_worker_that_was_given_up_promises_no_time_at_which_it_is_back(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={**os.environ, "EDGELLM_WORKERS_RESTARTS_MAX": "0"})
    daemon.wait_for(lambda: "ready after" in daemon.log)  # lost before that, a required model would end the start
    os.kill(worker_pids(daemon)[0], signal.SIGKILL)
    daemon.wait_for(lambda: daemon.model_health()["state"] == "unavailable")
    for refused in (daemon.chat("hello"), daemon.get("/health/ready")):
        assert refused.status_code == 503
        assert "retry-after" not in refused.headers
