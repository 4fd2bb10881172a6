#!/usr/bin/python
# Licence: Apache-2.0
"""Ansible module: has a board go to another release, and follows it from step to step, also over a lost connection."""

from __future__ import annotations

import json
import os
import time

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: board_upgrade
short_description: Have a board go to another release, and wait for a step of it
description:
  - Runs C(edgellm upgrade) on the board, as a unit of its own that outlives the connection, and waits until O(until) is
    done or the upgrade has ended.
  - Until V(prepared) the release is only put beside the one that serves, until V(staged) its engines are built too.
    Later steps take what serves out of service, and the upgrade then goes to its end.
  - With the same O(ticket) it is one upgrade, however often it is asked for; one that a power cut interrupted goes on.
  - Fails when the upgrade failed. The board then serves the release of before, unless RV(report.serving) is none.
options:
  ticket:
    description: Name of this upgrade, another one for each.
    type: str
    required: true
  source:
    description: What C(edgellm upgrade) is given. Without it the board goes back to O(release).
    type: str
  release:
    description: A release that was kept, by id or version; none is the one that served before.
    type: str
    default: ""
  keep:
    description: How many earlier releases stay.
    type: int
    default: 2
  until:
    description:
      - The step to wait for.
      - V(abandoned) waits for an upgrade that runs, whatever its ticket, and undoes one that was begun and does not
        run.
    type: str
    choices: [prepared, staged, drained, switched, ready, smoke, kept, abandoned]
    default: kept
  ready_seconds:
    description: How long the release may take until it is ready.
    type: int
    default: 1800
  wait_seconds:
    description: How long to wait for the step.
    type: int
    default: 7200
  state_folder:
    description: Where the host tool remembers.
    type: path
    default: /var/lib/edgellm-host
  command:
    description: The command of edgellm.
    type: path
    default: /usr/local/bin/edgellm
attributes:
  check_mode:
    support: full
author: edgellm (@edgellm)
"""

EXAMPLES = r"""
- name: Put the release beside the one that serves
  edgellm.appliance.board_upgrade:
    ticket: "2026-11-30 first"
    source: registry.example/edgellm@sha256:{{ digest }}
    until: prepared

- name: Upgrade
  edgellm.appliance.board_upgrade:
    ticket: "2026-11-30 first"
    source: registry.example/edgellm@sha256:{{ digest }}
"""

RETURN = r"""
ended:
  description: Whether the upgrade is over.
  returned: success
  type: bool
release:
  description: Id of the release that it is about; empty before that is known.
  returned: success
  type: str
steps:
  description: State (begun or done) of each step that was taken.
  returned: success
  type: dict
report:
  description: What C(edgellm upgrade) said at its end; empty before.
  returned: always
  type: dict
"""

UNIT = "edgellm-rollout-upgrade.service"
RECOVERY = "edgellm-upgrade-recover.service"
RECOVERY_SECONDS = 120.0
RESTARTS_MAX = 2
OUTPUT = "/run/edgellm-rollout-upgrade.err"
PREPARED, STAGED, ABANDONED = "prepared", "staged", "abandoned"
STEPS = (PREPARED, STAGED, "drained", "switched", "ready", "smoke", "kept")
GOOD = ("upgraded", "rolled_back", "unchanged", "started")
POLL_SECONDS = 0.5


class BoardError(Exception):
    """What a person can do something about."""


def read_json(path):
    """The object in a file; None where there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BoardError(f"{path}: {error}") from None


def write_json(path, value):
    unfinished = f"{path}.new"
    with open(unfinished, "w", encoding="utf-8") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(unfinished, path)


def words_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(4000).strip()
    except OSError:
        return ""


class Board:
    """One board's upgrade under one ticket."""

    def __init__(self, module):
        self._module = module
        given = module.params
        self._ticket, self._until = given["ticket"], given["until"]
        folder = given["state_folder"]
        self._journey, self._last = (os.path.join(folder, name) for name in ("upgrade.json", "last-upgrade.json"))
        self._restarts_left, self._started = RESTARTS_MAX, ""
        self._own = os.path.join(folder, "rollout.json")

    def run(self):
        """Ends the module."""
        if self._until == ABANDONED:
            self._abandon()
        changed = self._take_over()
        deadline = time.monotonic() + self._module.params["wait_seconds"]
        while True:
            running = self._is_running()  # asked first: what it wrote at its end is then there
            journey, report = read_json(self._journey), self._report()
            if report is not None and not running:
                self._end(changed, report)
            steps = self._steps(journey)
            if steps.get(self._until) == "done" and not (running and self._until in (PREPARED, STAGED)):
                self._exit(changed, journey, steps)
            if not running and report is None:
                changed = self._go_on(journey, steps) or changed
            if time.monotonic() >= deadline:
                self._module.fail_json(
                    msg=f"{self._until} did not come in {self._module.params['wait_seconds']} s; the upgrade goes on",
                    steps=steps,
                    report={},
                )
            time.sleep(POLL_SECONDS)

    def _take_over(self):
        """Returns whether this ticket was written down anew: nothing that was there before is of it."""
        own = read_json(self._own)
        if own is not None and own["ticket"] == self._ticket:
            self._wait_for_recovery()
            return False
        if self._is_running():
            raise BoardError(f"another upgrade of a rollout runs ({UNIT}) — wait until it has ended")
        os.makedirs(os.path.dirname(self._own), mode=0o700, exist_ok=True)
        write_json(self._own, {"ticket": self._ticket, "last_before": self._last_stamp(), "begun": False})
        return True

    def _go_on(self, journey, steps):
        """Starts what comes next. What ended without a word was killed: it is started again, but not for ever."""
        own = read_json(self._own)
        command = None  # it never came to its first step, was cut while staging, or was refused before
        if PREPARED in steps:
            command = "--prewarm" if self._until == STAGED else "--resume"
        if command == self._started:
            self._restarts_left -= 1
            if self._restarts_left < 0 or journey is None:
                self._end(True, self._refusal())
        self._started = command
        if not own["begun"]:
            write_json(self._own, {**own, "begun": True})
        self._start([command] if command else self._arguments())
        return True

    def _abandon(self):
        deadline = time.monotonic() + self._module.params["wait_seconds"]
        self._wait_for_recovery()
        while self._is_running():
            if time.monotonic() >= deadline:
                raise BoardError(f"an upgrade of a rollout runs ({UNIT}) and does not end — see journalctl -u {UNIT}")
            time.sleep(POLL_SECONDS)
        if read_json(self._journey) is None:
            self._module.exit_json(changed=False, ended=True, release="", steps={}, report={})
        code, said, error = self._module.run_command([self._module.params["command"], "upgrade", "--abandon", "--json"])
        lines = [line for line in said.splitlines() if line.startswith("{")]
        report = json.loads(lines[-1]) if lines else {"result": "down", "step": "abandoned", "reason": error.strip()}
        if code != 0:
            self._module.fail_json(msg=f"{report.get('step')}: {report.get('reason')}", report=report)
        self._module.exit_json(changed=True, ended=True, release="", steps={}, report=report)

    def _wait_for_recovery(self):
        """After a power cut the board first returns to the release of before."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < deadline and self._state_of(RECOVERY) == "activating":
            time.sleep(POLL_SECONDS)

    def _arguments(self):
        given = self._module.params
        options = ["--prepare", "--keep", str(given["keep"])]
        if given["source"]:
            return [given["source"], *options]
        return ["--rollback", *([given["release"]] if given["release"] else []), *options]

    def _start(self, arguments):
        given = self._module.params
        self._module.run_command(["systemctl", "reset-failed", UNIT])
        command = [given["command"], "upgrade", *arguments, "--ready-timeout", str(given["ready_seconds"]), "--json"]
        run = ["systemd-run", f"--unit={UNIT}", "--service-type=exec", "--collect", "--quiet"]
        run += ["--description=Upgrade of a rollout", f"--property=StandardError=truncate:{OUTPUT}"]
        run += ["--property=KillSignal=SIGINT", "--setenv=LC_ALL=C.UTF-8"]
        code, _, said = self._module.run_command([*run, *command])
        if code != 0:
            raise BoardError(f"the upgrade cannot be started: {said.strip()}")

    def _is_running(self):
        return self._state_of(UNIT) in ("active", "activating", "deactivating", "reloading")

    def _state_of(self, unit):
        _, shown, _ = self._module.run_command(["systemctl", "is-active", unit])
        return shown.strip()

    def _steps(self, journey):
        if journey is None or not read_json(self._own)["begun"]:  # of another upgrade
            return {}
        prepared = {PREPARED: "done"} if journey.get("prepared") else {}
        # A boot has taken back what came after.
        holds = (STAGED,) if journey["interrupted"] else STEPS
        return {**prepared, **{one["step"]: one["state"] for one in journey["steps"] if one["step"] in holds}}

    def _last_stamp(self):
        try:
            found = os.stat(self._last)
        except FileNotFoundError:
            return None
        return f"{found.st_ino}:{found.st_mtime_ns}"

    def _report(self):
        """Of this upgrade, when it has ended."""
        own = read_json(self._own)
        if own is not None and own.get("report") is not None:
            return own["report"]
        stamp = self._last_stamp()
        if read_json(self._journey) is not None or stamp is None or (own is not None and stamp == own["last_before"]):
            return None
        report = read_json(self._last)
        return None if report["result"] == "abandoned" else report

    def _refusal(self):
        """Before anything was changed, or nothing was to change: the journal of the unit has its only words."""
        said = words_of(OUTPUT)
        if not said:
            _, listed, _ = self._module.run_command([self._module.params["command"], "upgrade", "--list", "--json"])
            current = json.loads(listed)["current"]["id"] if listed.startswith("{") else None
            return {"result": "unchanged", "from": current, "to": current, "serving": current, "step": None}
        return {
            "result": "refused",
            "step": "staged",
            "reason": said.removeprefix("edgellm: "),
            "serving": "the release of before",
        }

    def _exit(self, changed, journey, steps):
        release = (journey["to"] or {}).get("id", "")
        self._module.exit_json(changed=changed, ended=False, release=release, steps=steps, report={})

    def _end(self, changed, report):
        good = report.get("result") in GOOD
        if not good and report.get("result") == "refused":
            os.unlink(self._own)  # nothing has changed: asked again it is tried again
        if good:
            steps = dict.fromkeys(STEPS, "done")
            release = report.get("to") or ""
            self._module.exit_json(changed=changed, ended=True, release=release, steps=steps, report=report)
        self._module.fail_json(msg=f"{report.get('step')}: {report.get('reason')}", report=report)


def main():
    module = AnsibleModule(
        argument_spec={
            "ticket": {"type": "str", "required": True},
            "source": {"type": "str"},
            "release": {"type": "str", "default": ""},
            "keep": {"type": "int", "default": 2},
            "until": {"type": "str", "choices": [*STEPS, ABANDONED], "default": "kept"},
            "ready_seconds": {"type": "int", "default": 1800},
            "wait_seconds": {"type": "int", "default": 7200},
            "state_folder": {"type": "path", "default": "/var/lib/edgellm-host"},
            "command": {"type": "path", "default": "/usr/local/bin/edgellm"},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, ended=False, release="", steps={}, report={})
    try:
        Board(module).run()
    except BoardError as error:
        module.fail_json(msg=str(error), report={})


if __name__ == "__main__":
    main()
