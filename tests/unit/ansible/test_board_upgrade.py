"""What the module that follows an upgrade reads from the files that the board's host tool writes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ansible.errors", reason="needs Ansible: sh daemon/setup/run fleet")

from tests.unit.ansible.collection import plugin

from edgellm.host.host_state import HostState, Journey, Step, StepState
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind, Release

OLD, NEW = Release(Kind.VENV, "1.0", "a" * 64), Release(Kind.VENV, "1.1", "b" * 64)


@pytest.fixture
def state(tmp_path: Path) -> HostState:
    return HostState(HostPaths(tmp_path))


def board(state: HostState, *, begun: bool = True) -> Any:
    state.folder.mkdir(parents=True, exist_ok=True)
    own = {"ticket": "of this run", "last_before": None, "begun": begun}
    (state.folder / "rollout.json").write_text(json.dumps(own))
    params = {"ticket": "of this run", "until": "kept", "state_folder": str(state.folder), "wait_seconds": 1}
    return plugin("modules/board_upgrade").Board(SimpleNamespace(params=params))


def journey_of(state: HostState) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((state.folder / "upgrade.json").read_bytes())
    return value


def test_steps_are_those_that_hold(state: HostState) -> None:
    journey = Journey(OLD, "wheel", 2, NEW, prepared=True)
    for step in (Step.STAGED, Step.DRAINED, Step.SWITCHED):
        journey = journey.at(step, StepState.BEGUN).at(step, StepState.DONE)
    one = board(state)
    assert one._steps(None) == {}
    state.write_journey(journey)
    every = {"prepared": "done", "staged": "done", "drained": "done", "switched": "done"}
    assert one._steps(journey_of(state)) == every
    state.write_journey(Journey(OLD, "wheel", 2, NEW, prepared=True, steps=journey.steps, interrupted=True))
    assert one._steps(journey_of(state)) == {"prepared": "done", "staged": "done"}  # a boot took the rest back
    assert board(state, begun=False)._steps(journey_of(state)) == {}  # of another upgrade


def test_what_was_abandoned_is_no_report_of_this_upgrade(state: HostState) -> None:
    one = board(state)
    state.end_journey({"result": "abandoned"})
    assert one._report() is None
    state.end_journey({"result": "upgraded", "to": NEW.id})
    assert one._report()["result"] == "upgraded"
