"""The pairing code on a board's console: shown while it holds, and taken back when it does not, by a real daemon."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.http.conftest import Daemon, StartDaemon
from tests.http.test_command import edgellm
from tests.http.test_pairing import PairingBoard

from edgellm.errors import FirstBootError
from edgellm.host import pairing_notice
from edgellm.host.pairing_notice import CODE_FILE, ISSUE_FILE, LIFETIME_SECONDS, PAIRED_MARK, PairingNotice
from edgellm.host.paths import HostPaths

DEADLINE_SECONDS = 60.0
TAKEN_BACK = "The pairing code above holds no more: "


class Console:
    """What a board's console has shown, and its login prompt shows."""

    board: PairingBoard

    def __init__(self, daemon: Daemon, root: Path) -> None:
        self.paths = HostPaths(root)
        self._terminal, self._shown_on = os.openpty()
        os.set_blocking(self._terminal, False)
        self._text = ""
        for link, target in (
            (self.paths.at("dev/console"), os.ttyname(self._shown_on)),
            (self.paths.admin_socket, str(daemon.admin_socket)),
        ):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)

    @property
    def text(self) -> str:
        with suppress(BlockingIOError):
            self._text += os.read(self._terminal, 65_536).decode()
        return self._text

    @property
    def prompt(self) -> str:
        file = self.paths.at(ISSUE_FILE)
        return file.read_text() if file.exists() else ""

    @property
    def code(self) -> str:
        """Of the login prompt."""
        (line,) = [line for line in self.prompt.splitlines() if "edgellm pair " in line]
        return line.split()[-1]

    @property
    def is_paired(self) -> bool:
        return (self.paths.state / PAIRED_MARK).exists()

    def wait_for(self, is_so: Callable[[], object]) -> None:
        self.board.daemon.wait_for(is_so)

    @contextmanager
    def noticing(self) -> Iterator[threading.Thread]:
        """While the unit's program runs, which is to end by itself."""
        thread = threading.Thread(target=PairingNotice(self.paths).show_until_used)
        thread.start()
        yield thread
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
        assert self.prompt == ""
        assert not (self.paths.state / CODE_FILE).exists()

    def close(self) -> None:
        os.close(self._terminal)
        os.close(self._shown_on)


@pytest.fixture
def console(start_daemon: StartDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    monkeypatch.setattr(pairing_notice, "POLL_SECONDS", 0.05)
    board = PairingBoard(start_daemon, tmp_path)
    made = Console(board.daemon, tmp_path / "board")
    made.board = board
    yield made
    made.close()


def pair(console: Console, code: str) -> None:
    paired = edgellm("pair", console.board.host, code, XDG_CONFIG_HOME=str(console.paths.root / "client"))
    assert paired.returncode == 0, paired.stderr


def test_a_code_that_was_used_is_taken_back(console: Console) -> None:
    with console.noticing():
        console.wait_for(lambda: console.prompt)
        code = console.code
        assert code in console.text
        pair(console, code)
    assert console.text.rstrip().endswith(f"{TAKEN_BACK}a client has paired with it.")
    assert console.is_paired


def test_a_code_in_the_place_of_the_one_that_is_shown_takes_it_back_and_is_waited_for(console: Console) -> None:
    with console.noticing():
        console.wait_for(lambda: console.prompt)
        shown = console.code
        other = console.board.open_code()
        console.wait_for(lambda: not console.prompt)
        console.wait_for(lambda: f"{TAKEN_BACK}edgellm pair-code made another one." in console.text)
        assert console.text.count(shown) == 1
        assert other not in console.text
        assert not console.is_paired
        pair(console, other)
    assert console.is_paired


def test_a_code_that_holds_no_more_is_taken_back(console: Console) -> None:
    with console.noticing():
        console.wait_for(lambda: console.prompt)
        assert console.board.verb("pair-code", "--close").returncode == 0
    assert f"{TAKEN_BACK}its time is over, or it was closed; edgellm pair-code opens another." in console.text
    assert not console.is_paired


def test_a_code_whose_time_ends_while_no_server_runs_is_taken_back(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    with console.noticing():
        console.wait_for(lambda: console.prompt)
        console.board.power_cut()
        now_seconds = pairing_notice._boottime_seconds()
        # Each look is a lifetime later: the notice may ask the time first when it is over already.
        times_seconds = itertools.count(now_seconds + LIFETIME_SECONDS, LIFETIME_SECONDS)
        monkeypatch.setattr(pairing_notice, "_boottime_seconds", lambda: next(times_seconds))
    assert f"{TAKEN_BACK}its time is over" in console.text


def test_a_code_that_an_administrator_opened_is_left_alone(console: Console) -> None:
    """As when the board starts again meanwhile."""
    code = console.board.open_code()
    with console.noticing():
        pair(console, code)
    assert "edgellm pair " not in console.text
    assert console.is_paired
    with console.noticing():
        pass  # it is used and known for a while, and nothing is shown
    assert console.text == ""


def test_a_server_that_lets_nobody_pair_is_why_the_console_shows_no_code(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    console = Console(start_daemon(), tmp_path / "board")
    with pytest.raises(FirstBootError, match="clients need no key here"):
        PairingNotice(console.paths).show_until_used()
    assert "This board shows no pairing code: the daemon opens no pairing code: " in console.text
    assert "clients need no key here — set server.api_keys_file" in console.text
    assert console.prompt == ""
    console.close()
