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
        """Return when a client has used the code or its time is over. Raises FirstBootError without a daemon."""
        try:
            opened, code = self._open_code()
            self._show(code, opened)
            state: Mapping[str, Any] | None = opened
            while state is not None and not state["is_used"]:
                time.sleep(POLL_SECONDS)
                with suppress(OSError):  # a daemon that starts anew
                    state = self._pairing()
        finally:
            self._hide()
        self._kept.unlink(missing_ok=True)
        if state is None:
            print("the pairing code's time is over; edgellm pair-code opens another")
        else:
            write_durably(self._paths.state / PAIRED_MARK, b"", 0o644)
            print("a client has paired with this board")

    def _open_code(self) -> tuple[Mapping[str, Any], str]:
        """The code that was shown before, if it is open still, else a new one."""
        state = self._wait_for_daemon()
        kept = self._read_kept()
        if state is not None and kept.get("id") == state["id"]:
            return state, str(kept["code"])
        opened = self._ask({"verb": "open-pairing", "lifetime_seconds": LIFETIME_SECONDS})["pairing"]
        make_private_folder(self._paths.state)
        write_json_durably(self._kept, {"id": opened["id"], "code": opened["code"]})
        return opened, str(opened["code"])

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
