"""The gate of the Python API: callers block, none is refused, and closing lets everybody go."""

from __future__ import annotations

import threading

import pytest
from tests.unit.runtime.waiting import InThread

from edgellm.errors import ClosedError, RequestCancelledError
from edgellm.runtime.direct_admission import DirectAdmission


def test_a_caller_beyond_the_permits_waits_for_one() -> None:
    gate = DirectAdmission(1)
    gate.acquire()
    waiting = InThread(gate.acquire)
    assert not waiting.done
    gate.release()
    waiting.outcome()


def test_closing_sends_waiting_callers_away_and_lets_holders_release() -> None:
    gate = DirectAdmission(1)
    gate.acquire()
    waiting = InThread(gate.acquire)
    gate.close()
    with pytest.raises(ClosedError):
        waiting.outcome()
    with pytest.raises(ClosedError):
        gate.acquire()
    gate.release()
    gate.wait_until_free()


def test_a_caller_that_gave_up_leaves_without_a_permit() -> None:
    gate = DirectAdmission(1)
    gate.acquire()
    given_up = threading.Event()
    waiting = InThread(lambda: gate.acquire(given_up.is_set))
    given_up.set()
    gate.wake()
    with pytest.raises(RequestCancelledError):
        waiting.outcome()
    gate.release()
    gate.wait_until_free()


def test_a_permit_comes_back_once() -> None:
    gate = DirectAdmission(2)
    gate.acquire()
    gate.release()
    with pytest.raises(RuntimeError, match="twice"):
        gate.release()
