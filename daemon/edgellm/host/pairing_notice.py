"""PairingNotice: the pairing code on the console of a board that nobody has paired with yet, and nowhere else.

The text lies in a file that only root reads: the console's login prompt shows it, that of the network does not.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgellm.durable_file import make_private_folder, write_durably, write_json_durably
from edgellm.errors import FirstBootError
from edgellm.host.admin_question import admin_socket, ask_server
from edgellm.host.commands import attempt
from edgellm.host.paths import HostPaths

LIFETIME_SECONDS = 3_600.0
POLL_SECONDS = 2.0
DAEMON_DEADLINE_SECONDS = 1_800.0
CODE_FILE = "pairing-code.json"  # so that a reboot shows the same code
PAIRED_MARK = "paired"  # a condition of the unit
ISSUE_FILE = "run/issue.d/edgellm.issue"
CONSOLE = "dev/console"


class PairingNotice:
    def __init__(self, paths: HostPaths) -> None:
        self._paths = paths
        self._kept = paths.state / CODE_FILE
        self._issue = paths.at(ISSUE_FILE)

    def show_until_used(self) -> None:
        """Return when a client has used a code or its time is over. Raises FirstBootError without a daemon, or where it
        lets nobody pair, and the console says so: whoever waits there for a code sees nothing else."""
        try:
            self._show_until_used()
        except FirstBootError as error:
            self._write_to_console(f"\nThis board shows no pairing code: {error}\n\n")
            raise

    def _show_until_used(self) -> None:
        state: Mapping[str, Any] | None
        opened, code = self._open_code()
        if code is None or opened["is_used"]:
            state = self._wait_for_end(opened)
        else:
            try:
                self._show(code, opened)
                state = self._wait_for_end(opened)
            finally:
                self._hide()
            if state is not None and state["id"] != opened["id"]:
                self._take_back("edgellm pair-code made another one")
                state = self._wait_for_end(state)
            elif state is not None:
                self._take_back("a client has paired with it")
            else:
                self._take_back("its time is over, or it was closed; edgellm pair-code opens another")
        self._kept.unlink(missing_ok=True)
        if state is not None and state["is_used"]:
            make_private_folder(self._paths.state)
            write_durably(self._paths.state / PAIRED_MARK, b"", 0o644)
            print("a client has paired with this board")
        else:
            print("the pairing code's time is over; edgellm pair-code opens another")

    def _open_code(self) -> tuple[Mapping[str, Any], str | None]:
        """The code that was shown before, if it is open still, else a new one. One that somebody else opened stays, and
        nobody but them knows it: None."""
        state = self._wait_for_daemon()
        kept = self._read_kept()
        if state is not None:
            return state, str(kept["code"]) if kept.get("id") == state["id"] else None
        opened = self._ask({"verb": "open-pairing", "lifetime_seconds": LIFETIME_SECONDS})["pairing"]
        make_private_folder(self._paths.state)
        write_json_durably(self._kept, {"id": opened["id"], "code": opened["code"]})
        return opened, str(opened["code"])

    def _wait_for_end(self, opened: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The code as it was used, or the one that was opened in its place; None where there is none any more."""
        ends_seconds = _boottime_seconds() + opened["left_seconds"]
        state: Mapping[str, Any] | None = opened
        while state is not None and state["id"] == opened["id"] and not state["is_used"]:
            time.sleep(POLL_SECONDS)
            try:
                state = self._pairing()
            except OSError:  # a daemon that starts anew
                if _boottime_seconds() >= ends_seconds:
                    return None
        return state

    def _wait_for_daemon(self) -> Mapping[str, Any] | None:
        deadline = time.monotonic() + DAEMON_DEADLINE_SECONDS
        while True:
            try:
                return self._pairing()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise FirstBootError(f"no daemon answers at {admin_socket(self._paths)}: {error}") from None
                time.sleep(POLL_SECONDS)

    def _pairing(self) -> Mapping[str, Any] | None:
        """The code that is open, without the code itself."""
        state: Mapping[str, Any] | None = self._ask({"verb": "show-pairing"}).get("pairing")
        return state

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = ask_server(self._paths, request)
        if answer.get("answer") != "done":
            raise FirstBootError(f"the daemon opens no pairing code: {answer.get('message')}")
        return answer

    def _show(self, code: str, state: Mapping[str, Any]) -> None:
        name = f"{socket.gethostname().partition('.')[0]}.local"
        text = (
            f"\nPair a client with this board in the next {state['left_seconds'] / 60:.0f} minutes:\n\n"
            f"    edgellm pair {name} {code}\n\n"
            f"authority (SHA-256): {state['fingerprint']}\n\n"
        )
        self._issue.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_durably(self._issue, text.encode())
        self._write_to_console(text)
        self._tell_login_prompts()

    def _take_back(self, why: str) -> None:
        """Of what a console has shown nothing can be wiped off."""
        self._write_to_console(f"\nThe pairing code above holds no more: {why}.\n\n")

    def _hide(self) -> None:
        self._issue.unlink(missing_ok=True)
        self._tell_login_prompts()

    def _write_to_console(self, text: str) -> None:
        with suppress(OSError):  # a board may have none
            descriptor = os.open(self._paths.at(CONSOLE), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            with open(descriptor, "w", encoding="utf-8") as console:
                console.write(text.replace("\n", "\r\n"))

    def _tell_login_prompts(self) -> None:
        if Path("/sbin/agetty").exists():
            attempt(["/sbin/agetty", "--reload"])

    def _read_kept(self) -> dict[str, Any]:
        try:
            kept = json.loads(self._kept.read_bytes())
            return kept if isinstance(kept, dict) else {}
        except (OSError, ValueError):
            return {}


def _boottime_seconds() -> float:
    """Runs on while the machine sleeps, as the daemon's."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
