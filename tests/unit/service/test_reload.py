"""Files are read anew when they change; what is wrong with them changes nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from edgellm.errors import ConfigError
from edgellm.service import reload
from edgellm.service.reload import ReloadedFiles, Reloader


def test_only_a_change_is_read(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one")
    read: list[str] = []
    files = ReloadedFiles("keys", [file], lambda: read.append(file.read_text()), check=lambda: None)
    files.reload_if_changed()
    assert read == []
    other = tmp_path / "other"
    other.write_text("two")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)
    files.reload_if_changed()
    files.reload_if_changed()
    assert read == ["two"]
    file.unlink()
    with pytest.raises(FileNotFoundError):
        files.reload_if_changed()


def test_what_is_wrong_is_logged_once_and_the_next_change_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("bad")
    taken: list[str] = []

    def take() -> None:
        if file.read_text() == "bad again":
            raise ConfigError("keys line 1: expected name:key")
        taken.append(file.read_text())

    files = ReloadedFiles("API keys", [file], take, check=lambda: None)
    file.write_text("bad again")
    files.reload_if_changed()
    files.reload_if_changed()
    assert taken == []
    assert caplog.text.count("expected name:key") == 1
    file.write_text("good")
    files.reload_if_changed()
    assert taken == ["good"]


def test_the_watch_sees_changes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.01)
    file = tmp_path / "keys"

    async def scenario() -> None:
        seen = asyncio.Event()
        watching = asyncio.create_task(Reloader([ReloadedFiles("keys", [file], seen.set, check=lambda: None)]).watch())
        file.write_text("new")
        await asyncio.wait_for(seen.wait(), 30)
        watching.cancel()

    asyncio.run(scenario())
