"""What hangs or dies comes back by itself: workers within the daemon, the daemon by systemd."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.service.appliance import READY_SECONDS, READY_TARGET, UNIT, Appliance
from tests.service.conftest import MakeAppliance, Say

# Sooner than by default, so that tests need not wait as long.
CONFIGURATION = "[workers]\nping_deadline_seconds = 3.0\n"
WATCHDOG = "[Service]\nWatchdogSec=6s\n"


@pytest.fixture(scope="module")
def appliance(make_appliance: MakeAppliance) -> Appliance:
    made = make_appliance("recovery").serve()
    made.configure(CONFIGURATION)
    made.drop_in("watchdog", WATCHDOG)
    made.device.run("systemctl", "restart", UNIT)
    return made


@pytest.fixture(autouse=True)
def _answers_before(appliance: Appliance) -> None:
    """Each test has its own share of the start limit."""
    appliance.device.run("systemctl", "reset-failed", UNIT, check=False)
    appliance.wait_until_it_answers()


@pytest.mark.parametrize("signal", ["STOP", "KILL"])
def test_a_worker_is_replaced_and_the_daemon_stays(appliance: Appliance, signal: str, say: Say) -> None:
    pid, restarts, (worker,) = appliance.pid(), appliance.restarts(), appliance.worker_pids()
    began = time.monotonic()
    appliance.device.run("kill", f"-{signal}", str(worker))
    appliance.device.wait_for(lambda: worker not in appliance.worker_pids(), "the end of the worker")
    appliance.wait_until_it_answers()
    say(f"worker: SIG{signal} to the next answer: {time.monotonic() - began:.1f} s")
    assert (appliance.pid(), appliance.restarts()) == (pid, restarts)
    appliance.device.wait_for(
        lambda: appliance.state()["StatusText"] == "serving on http://127.0.0.1:8000", "a status without complaints"
    )


def test_status_names_a_model_that_is_being_restarted(appliance: Appliance) -> None:
    (worker,) = appliance.worker_pids()
    appliance.device.run("kill", "-KILL", str(worker))
    appliance.device.wait_for(lambda: "is loading" in appliance.state()["StatusText"], "a status that says so")


def test_a_killed_daemon_is_started_again_with_its_workers(appliance: Appliance, say: Say) -> None:
    pid, restarts, workers = appliance.pid(), appliance.restarts(), appliance.worker_pids()
    began = time.monotonic()
    appliance.device.run("kill", "-KILL", str(pid))
    appliance.device.wait_for(lambda: not appliance.is_active(READY_TARGET), "the end of the target")
    appliance.device.wait_for(lambda: appliance.restarts() == restarts + 1, "the restart")
    appliance.wait_until_it_answers()
    appliance.device.wait_for(lambda: appliance.is_active(READY_TARGET), "the target")
    say(f"daemon: SIGKILL to the next answer: {time.monotonic() - began:.1f} s")
    assert appliance.pid() != pid
    assert not set(workers) & set(appliance.worker_pids())
    assert len(appliance.worker_pids()) == 1


def test_the_watchdog_restarts_a_stuck_daemon_which_says_where_it_was(appliance: Appliance, say: Say) -> None:
    pid, restarts = appliance.pid(), appliance.restarts()
    began = time.monotonic()
    appliance.device.run("kill", "-STOP", str(pid))
    appliance.device.wait_for(lambda: appliance.restarts() == restarts + 1, "the watchdog")
    appliance.wait_until_it_answers()
    say(f"daemon: SIGSTOP to the next answer, WatchdogSec=6: {time.monotonic() - began:.1f} s")
    journal = appliance.journal()
    assert "Watchdog timeout (limit 6s)!" in journal
    assert "Fatal Python error: Aborted" in journal
    assert "edgellm/service/start.py" in journal  # the stack of the event loop


def test_a_model_that_is_gone_for_good_is_brought_back_by_the_watchdog(appliance: Appliance) -> None:
    appliance.configure(f"{CONFIGURATION}restarts_max = 0\n")
    appliance.device.run("systemctl", "restart", UNIT)
    restarts, (worker,) = appliance.restarts(), appliance.worker_pids()
    appliance.device.run("kill", "-KILL", str(worker))
    appliance.device.wait_for(lambda: "is unavailable" in appliance.state()["StatusText"], "the loss of the model")
    appliance.device.wait_for(lambda: appliance.restarts() == restarts + 1, "the watchdog", READY_SECONDS)
    appliance.wait_until_it_answers()
    assert "every required model is unavailable" in appliance.journal()
    appliance.configure(CONFIGURATION)
    appliance.device.run("systemctl", "restart", UNIT)


def test_memory_that_runs_out_costs_the_worker_and_not_the_daemon(appliance: Appliance, say: Say) -> None:
    scores = {name: _oom_score(appliance, pid) for name, pid in _daemon_and_worker(appliance).items()}
    assert scores["worker"] >= scores["daemon"] + 500
    pid, restarts, (worker,) = appliance.pid(), appliance.restarts(), appliance.worker_pids()
    used_bytes = int(appliance.device.unit(UNIT, "MemoryCurrent")["MemoryCurrent"])
    say(f"memory of the unit: {used_bytes / 2**20:.0f} MiB")
    limit_bytes = used_bytes + (24 << 20)
    appliance.device.run("systemctl", "set-property", "--runtime", UNIT, f"MemoryMax={limit_bytes}")
    fields = {"messages": [{"role": "user", "content": "word " * 3000}], "max_tokens": 64}
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(_status_of, appliance, {**fields, "seed": number}) for number in range(4)]
        appliance.device.wait_for(lambda: worker not in appliance.worker_pids(), "the end of the worker")
        # What asked for too much is over: the next worker has what the first one had.
        appliance.device.run("systemctl", "set-property", "--runtime", UNIT, "MemoryMax=infinity")
        for one in asked:
            one.result()
    appliance.wait_until_it_answers()
    assert (appliance.pid(), appliance.restarts()) == (pid, restarts)
    assert "was ended by SIGKILL" in appliance.journal()


def test_a_device_short_of_memory_ends_the_worker_before_anything_else(appliance: Appliance) -> None:
    """By the order that the kernel itself keeps, whatever else runs there: see proc(5), oom_score."""
    (worker,) = appliance.worker_pids()
    listed = appliance.device.run("sh", "-c", "for at in /proc/[0-9]*; do echo ${at#/proc/} $(cat $at/oom_score); done")
    scores = {
        int(pid): int(score) for pid, _, score in (line.partition(" ") for line in listed.output.splitlines()) if score
    }
    assert {1, appliance.pid(), worker} <= scores.keys()
    assert [pid for pid, score in scores.items() if score >= scores[worker]] == [worker]


def _status_of(appliance: Appliance, fields: dict[str, object]) -> int:
    try:
        return appliance.chat(**fields).status_code
    except OSError:
        return 0


def _daemon_and_worker(appliance: Appliance) -> dict[str, int]:
    (worker,) = appliance.worker_pids()
    return {"daemon": appliance.pid(), "worker": worker}


def _oom_score(appliance: Appliance, pid: int) -> int:
    return int(appliance.device.read(f"/proc/{pid}/oom_score_adj"))
