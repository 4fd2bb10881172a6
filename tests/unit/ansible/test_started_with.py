"""What a unit is started with is written down by itself; what has changed since is found, whatever file it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.ansible.collection import ROLES

PROGRAM = ROLES / "device/files/started-with"
UNIT = "some.service"
SYSTEMCTL = """#!/bin/sh
cat "$0.answer"
"""


class Host:
    """The program with its marks and systemd in a folder."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "started-with"
        self._program.write_text(PROGRAM.read_text().replace("/run/edgellm-started-with", str(folder / "marks")))
        self._systemctl = folder / "bin/systemctl"
        self._systemctl.parent.mkdir()
        self._systemctl.write_text(SYSTEMCTL)
        self._systemctl.chmod(0o755)
        self.systemd_says("no")
        self.file, self.absent, self.folder = folder / "file", folder / "absent", folder / "unit.d"
        self.folder.mkdir()
        self.file.write_text("one")
        (self.folder / "10.conf").write_text("one")

    def systemd_says(self, needs_reload: str) -> None:
        self._systemctl.with_name("systemctl.answer").write_text(f"{needs_reload}\n")

    def call(self, action: str, unit: str = UNIT) -> list[str]:
        names = map(str, (self.file, self.absent, self.folder))
        done = subprocess.run(
            [sys.executable, "-I", self._program, action, unit, *names],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": f"{self._systemctl.parent}:/usr/bin:/bin"},
        )
        return done.stdout.split()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_nothing_has_changed_right_after_a_start(host: Host) -> None:
    host.call("record")
    assert host.call("compare") == []


def test_every_kind_of_change_is_named(host: Host) -> None:
    host.call("record")
    host.file.write_text("two")
    host.absent.write_text("come")
    (host.folder / "10.conf").unlink()
    (host.folder / "20.conf").write_text("come")
    changed = [host.absent, host.file, host.folder / "10.conf", host.folder / "20.conf"]
    assert host.call("compare") == [str(file) for file in changed]
    host.call("record")
    assert host.call("compare") == []


def test_all_has_changed_where_nothing_was_written_down(host: Host) -> None:
    assert set(host.call("compare")) == {str(host.file), str(host.absent), str(host.folder / "10.conf")}


def test_what_systemd_has_not_read_yet_was_not_started_with(host: Host) -> None:
    host.call("record")
    host.systemd_says("yes")
    host.call("record")
    assert str(host.file) in host.call("compare")


def test_what_a_reload_takes_on_is_written_down_beside_it(host: Host) -> None:
    for unit in (UNIT, f"{UNIT}/reloaded"):
        host.call("record", unit)
    host.file.write_text("two")
    host.call("record", f"{UNIT}/reloaded")
    assert host.call("compare", f"{UNIT}/reloaded") == []
    assert host.call("compare") == [str(host.file)]
