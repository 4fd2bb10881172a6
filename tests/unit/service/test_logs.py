"""Log lines are one line an event and forge nothing."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from tests.unit.restored_logging import restored_logging

from edgellm.config import LogSettings
from edgellm.service import logs

__all__ = ["restored_logging"]


def settings(**values: str) -> LogSettings:
    return LogSettings.model_validate(values)


def test_text_lines_name_level_and_logger(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings())
    logging.getLogger("edgellm.engine").warning("slow by %d ms", 5)
    assert capsys.readouterr().err.split(" ", 1)[1] == "warning edgellm.engine: slow by 5 ms\n"


def test_the_level_holds(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings(level="error"))
    logging.getLogger("edgellm").warning("not shown")
    assert capsys.readouterr().err == ""


def test_a_message_cannot_forge_a_second_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings())
    logging.getLogger("x").info("one\n00:00:00 error x: two\x1b[2J")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert r"one\n00:00:00 error x: two\x1b[2J" in err


def test_json_lines_are_objects(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings(format="json"))
    logging.getLogger("x").error("a\nb")
    entry = json.loads(capsys.readouterr().err)
    assert (entry["level"], entry["logger"], entry["message"]) == ("error", "x", "a\nb")
    assert entry["time"].endswith("Z")


def test_the_journal_gets_its_level_as_a_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings(), journal=True)
    logging.getLogger("x").error("bad")
    assert capsys.readouterr().err == "<3>x: bad\n"


def test_configuring_twice_writes_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(settings())
    logs.configure(settings())
    logging.getLogger("x").info("once")
    assert capsys.readouterr().err.count("once") == 1


def test_the_journal_is_known_by_its_stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        assert logs.goes_to_journal()
        monkeypatch.setenv("JOURNAL_STREAM", "1:2")
        assert not logs.goes_to_journal()
        monkeypatch.delenv("JOURNAL_STREAM")
        assert not logs.goes_to_journal()


def test_lines_for_people_become_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stream = logs.LogLines(logging.getLogger("tests.said"))
    for piece in ("edgellm: listen", "ing\n\n  URL %s\nunfin", "ished"):
        assert stream.write(piece) == len(piece)
    assert [record.getMessage() for record in caplog.records] == ["edgellm: listening", "URL %s"]
    assert not stream.isatty()
