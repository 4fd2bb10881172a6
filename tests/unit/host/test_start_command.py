"""The way to start the server fits how this machine has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgellm.host import start_command as module
from edgellm.host.start_command import CREDENTIALS_FOLDER, start_command


def test_a_service_is_started_by_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "installed.json"
    monkeypatch.setattr(module, "RECORD", str(record).lstrip("/"))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert start_command() == "edgellm serve"
    record.touch()
    assert start_command() == "systemctl start edgellm"


def test_a_container_of_the_command_knows_it_by_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORD", "nowhere/installed.json")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", CREDENTIALS_FOLDER)
    assert start_command() == "systemctl start edgellm"
