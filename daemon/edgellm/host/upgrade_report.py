"""What an upgrade says: a line for each step, and one at its end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgellm.host.host_state import Step, StepState
from edgellm.host.smoke import SmokeResult


@dataclass(frozen=True, slots=True)
class StepReport:
    """``seconds`` is None when the step begins."""

    step: Step
    state: StepState
    release: str | None
    seconds: float | None = None

    def as_json(self) -> dict[str, Any]:
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {
            "event": "step",
            "step": self.step.value,
            "state": self.state.value,
            "release": self.release,
            "seconds": seconds,
        }


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """``result`` is upgraded, rolled_back, prepared, abandoned, unchanged, installed, started, returned or down.

    ``serving`` is the release that answers. It refused what had been edited since it was left where there is an
    ``edits_folder``, which has that. ``notes`` say what happened to files that were there before.
    """

    result: str
    from_release: str
    to_release: str | None
    serving: str | None
    step: str | None = None
    reason: str | None = None
    downtime_seconds: float | None = None
    was_cut_short: bool = False
    smoke: Sequence[SmokeResult] = field(default=())
    journal: Sequence[str] = field(default=())
    exit_code: int = 0
    edits_folder: str | None = None
    refusal_of_edits: str | None = None
    notes: Sequence[str] = field(default=())

    def as_json(self) -> dict[str, Any]:
        return {
            "event": "result",
            "result": self.result,
            "from": self.from_release,
            "to": self.to_release,
            "serving": self.serving,
            "step": self.step,
            "reason": self.reason,
            "downtime_seconds": None if self.downtime_seconds is None else round(self.downtime_seconds, 3),
            "requests_cut_short": self.was_cut_short,
            "smoke": [one.as_json() for one in self.smoke],
            "journal": list(self.journal),
            "exit_code": self.exit_code,
            "edits_folder": self.edits_folder,
            "refusal_of_edits": self.refusal_of_edits,
            "notes": list(self.notes),
        }


def report_line(value: Mapping[str, Any]) -> str:
    """For people."""
    if value["event"] == "step":
        release = value["release"] or "the release"
        return (
            f"{value['step']:<9} {release} …"
            if value["seconds"] is None
            else (f"{value['step']:<9} {release}: done ({value['seconds']:.1f} s)")
        )
    beside = f"{value['to']} is beside it; " if value["result"] == "prepared" else ""
    serves = f"{value['result']}: {beside}{serving_line(value['serving'])}"
    if value.get("edits_folder") is None:
        return serves
    return f"{serves} {edits_line(value)}"


def kept_lines(kept: Sequence[str], here: Collection[str], last: Mapping[str, Any] | None) -> list[str]:
    """Ids of the releases that do not serve, the one that served last first, and where a rollback goes. ``last`` is the
    report of the last upgrade."""
    lines = [f"{release}  {'kept' if release in here else 'gone from the disk'}" for release in kept]
    present = [release for release in kept if release in here]
    if not present:
        return lines
    line = f"edgellm upgrade --rollback goes to {present[0]}, which served last before this one"
    if last is not None and last.get("result") == "rolled_back" and last.get("from") == present[0]:
        line += " and was left by a rollback: forward again"
    further = f"; --rollback {present[1]} goes further back" if len(present) > 1 else ""
    return [*lines, f"{line}{further}"]


def serving_line(serving: str | None) -> str:
    return "nothing serves: see systemctl status edgellm" if serving is None else f"{serving} serves"


def edits_line(value: Mapping[str, Any]) -> str:
    """What became of them."""
    return (
        f"with the configuration that it had: it refuses the one of now ({value['refusal_of_edits']}) — "
        f"what was edited since is in {value['edits_folder']}"
    )
