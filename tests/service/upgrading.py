"""`edgellm upgrade` on a device, as an administrator or a playbook calls it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.service.appliance import Appliance

COMMAND = "/usr/local/bin/edgellm"
UPGRADE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Upgraded:
    """``steps`` are (step, state) in their order; ``report`` is the last line, empty where there was none."""

    code: int
    steps: list[tuple[str, str]]
    seconds: dict[str, float]
    report: dict[str, Any]
    output: str


def upgrade(appliance: Appliance, *arguments: str) -> Upgraded:
    done = appliance.device.run(COMMAND, "upgrade", *arguments, "--json", check=False, deadline_seconds=UPGRADE_SECONDS)
    return upgraded(done.code, done.output)


def upgraded(code: int, output: str) -> Upgraded:
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    steps = [event for event in events if event["event"] == "step"]
    reports = [event for event in events if event["event"] == "result"]
    return Upgraded(
        code,
        [(event["step"], event["state"]) for event in steps],
        {event["step"]: event["seconds"] for event in steps if event["seconds"] is not None},
        reports[-1] if reports else {},
        output,
    )


@contextmanager
def upgrading(appliance: Appliance, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """While it runs."""
    with subprocess.Popen(
        [*appliance.device.enter(), COMMAND, "upgrade", *arguments, "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def releases_of(appliance: Appliance) -> dict[str, Any]:
    listed: dict[str, Any] = json.loads(appliance.device.run(COMMAND, "upgrade", "--list", "--json").output)
    return listed


def serving_version(appliance: Appliance) -> str:
    """Of the environment that the process which answers runs from, not of what is current."""
    python = appliance.device.read(f"/proc/{appliance.pid()}/cmdline").split("\0")[0]
    return appliance.device.run(python, "-P", "-m", "edgellm", "--version").output.split()[-1]
