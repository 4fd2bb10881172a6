"""ServiceUnit: edgellm.service as systemd sees it."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Mapping

from edgellm.errors import UpgradeError
from edgellm.host.commands import attempt, run

SERVICE = "edgellm.service"
PREWARM = "edgellm-prewarm.service"
STOP_DEADLINE_SECONDS = 900.0
STATE_POLL_SECONDS = 0.2
# One start of systemd's own may follow a first that failed: a port that was not free yet.
RESTARTS_MAX = 1
JOURNAL_LINES = 40
SERVING_STATES = ("active", "reloading", "refreshing")
EXIT_FORCED = "67"  # requests were cut short, or workers killed


class ServiceUnit:
    def properties(self, *names: str, unit: str = SERVICE) -> Mapping[str, str]:
        shown = run(["systemctl", "show", unit, *(f"--property={name}" for name in names)]).output
        return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)

    def environment(self, unit: str) -> Mapping[str, str]:
        """The variables that its lines ``Environment=`` set, an administrator's among them; none where it is not."""
        words = shlex.split(self.properties("Environment", unit=unit).get("Environment", ""))
        return dict(word.split("=", 1) for word in words if "=" in word)

    def is_active(self) -> bool:
        return self.properties("ActiveState")["ActiveState"] in SERVING_STATES

    def refuse_masked(self, unit: str = SERVICE) -> None:
        """Raises UpgradeError."""
        if self.properties("LoadState", unit=unit).get("LoadState") == "masked":
            name = unit.removesuffix(".service")
            raise UpgradeError(f"{unit} is masked, so that nothing starts it — systemctl unmask {name}, then again")

    def restarts(self) -> int:
        return int(self.properties("NRestarts").get("NRestarts") or 0)

    def stop(self) -> bool:
        """Running requests finish, up to the server's own limit. Whether all of them did."""
        was_active = self.is_active()
        run(["systemctl", "stop", SERVICE], deadline_seconds=STOP_DEADLINE_SECONDS)
        attempt(["systemctl", "reset-failed", SERVICE])  # the start limit is each release's own
        return not was_active or self.properties("ExecMainStatus").get("ExecMainStatus") != EXIT_FORCED

    def start(self, deadline_seconds: float) -> None:
        """Return when it is READY. Raises UpgradeError with what it said when it is not."""
        self.refuse_masked()
        attempt(["systemctl", "reset-failed", SERVICE])
        run(["systemctl", "--no-block", "start", SERVICE])
        deadline = time.monotonic() + deadline_seconds
        while True:
            state = self.properties("ActiveState", "SubState", "NRestarts", "StatusText", "ExecMainStatus", "Job")
            if state["ActiveState"] == "active":
                return
            has_job = state.get("Job", "") not in ("", "0")
            if state["ActiveState"] in ("failed", "inactive") and not has_job:
                raise UpgradeError(f"the service ended with {state.get('ExecMainStatus', '?')}: {self._why(state)}")
            if int(state.get("NRestarts") or 0) > RESTARTS_MAX:
                raise UpgradeError(f"the service starts over and over: {self._why(state)}")
            if time.monotonic() > deadline:
                raise UpgradeError(f"the service was not ready within {deadline_seconds:g} s: {self._why(state)}")
            time.sleep(STATE_POLL_SECONDS)

    def _why(self, state: Mapping[str, str]) -> str:
        lines = self.journal(lines=1)
        return state.get("StatusText") or (lines[-1] if lines else "it said nothing")

    def journal(self, unit: str = SERVICE, *, lines: int = JOURNAL_LINES) -> list[str]:
        """The end of what it wrote since its last start, or before it where it has written nothing since."""
        try:
            invocation = self.properties("InvocationID", unit=unit).get("InvocationID", "")
            for chosen in (f"_SYSTEMD_INVOCATION_ID={invocation}", f"--unit={unit}"):
                said = attempt(["journalctl", "--quiet", "--no-pager", "--output=cat", f"--lines={lines}", chosen])
                if said.output.strip():
                    return said.output.splitlines()
        except UpgradeError:
            pass
        return []


def reload_units() -> None:
    run(["systemctl", "daemon-reload"])


def systemd_runs() -> bool:
    """In a folder that a device will boot from, or in a container, it does not."""
    try:
        return subprocess.run(["systemctl", "is-system-running"], capture_output=True, check=False).returncode in (0, 1)  # noqa: S607
    except FileNotFoundError:
        return False
