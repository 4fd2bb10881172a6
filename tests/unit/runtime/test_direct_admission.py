"""The gate of the Python API: callers block, none is refused, and closing lets everybody go."""

from __future__ import annotations

import threading

import pytest
from edgellm.errors import ClosedError, RequestCancelledError
from edgellm.runtime.direct_admission import DirectAdmission
from tests.unit.runtime.scripted_runtime import DEADLINE_SECONDS


def in_thread(call: object) -> tuple[threading.Thread, list[BaseException | None]]:
    outcomes: list[BaseException | None] = []

    def run() -> None:
        try:
            call()  # type: ignore[operator]
        except BaseException as error:
            outcomes.append(error)
        else:
            outcomes.append(None)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcomes


def test_a_caller_beyond_the_permits_waits_for_one() -> None:
    gate = DirectAdmission(1)
    gate.acquire()
    thread, outcomes = in_thread(gate.acquire)
    assert not outcomes
    gate.release()
    thread.join(DEADLINE_SECONDS)
    assert outcomes == [None]


def test_closing_sends_waiting_callers_away_and_lets_holders_release() -> None:
    gate = DirectAdmission(1)
    gate.acquire()
    thread, outcomes = in_thread(gate.acquire)
    gate.close()
    thread.join(DEADLINE_SECONDS)
    assert isinstance(outcomes[0], ClosedError)
    with pytest.raises(ClosedError):
        gate.acquire()
    gate.release()
    gate.wait_until_free()


def test_a_caller_that_gave_up_leaves_without_a_permit() -> None:
    gate = DirectAdmission(1)
    gate.acquire()
    given_up = threading.Event()
    thread, outcomes = in_thread(lambda: gate.acquire(given_up.is_set))
    given_up.set()
    gate.wake()
    thread.join(DEADLINE_SECONDS)
    assert isinstance(outcomes[0], RequestCancelledError)
    gate.release()
    gate.wait_until_free()


def test_a_permit_comes_back_once() -> None:
    gate = DirectAdmission(2)
    gate.acquire()
    gate.release()
    with pytest.raises(RuntimeError, match="twice"):
        gate.release()
