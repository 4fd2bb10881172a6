"""The file of records: closed to others, rotated, opened anew, and harmless when it cannot be written."""

from __future__ import annotations

import json
import os
import resource
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgellm.serving import record_file
from edgellm.serving.record_file import LINE_BYTES_MAX, LINES_WAITING_MAX, RecordFile, RecordFileSettings

DEADLINE_SECONDS = 60.0


class Counted:
    """What became of lines, and a wait for it."""

    def __init__(self) -> None:
        self.by_result: Counter[str] = Counter()
        self._changed = threading.Condition()

    def __call__(self, result: str, lines: int) -> None:
        with self._changed:
            self.by_result[result] += lines
            self._changed.notify_all()

    def until(self, **expected: int) -> None:
        def reached() -> bool:
            return all(self.by_result[result] >= lines for result, lines in expected.items())

        with self._changed:
            assert self._changed.wait_for(reached, DEADLINE_SECONDS), self.by_result


@contextmanager
def opened(path: Path, **settings: int) -> Iterator[tuple[RecordFile, Counted]]:
    counted = Counted()
    file = RecordFile(RecordFileSettings(path, **settings), counted)
    try:
        yield file, counted
    finally:
        file.close(DEADLINE_SECONDS)


def lines_of(*paths: Path) -> list[int]:
    return [json.loads(line)["n"] for path in paths for line in path.read_text().splitlines()]


def test_lines_are_json_in_order_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.touch(0o644)
    with opened(path) as (file, _):
        for number in range(100):
            file.write({"n": number, "id": "a\nb"})
    assert lines_of(path) == list(range(100))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_file_is_put_aside_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "records"
    line_bytes = len(b'{"n":100}\n')
    with opened(path, max_bytes=10 * line_bytes, files_kept=2) as (file, counted):
        for number in range(100, 145):
            file.write({"n": number})
        counted.until(written=45)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["records", "records.1", "records.2"]
    assert lines_of(tmp_path / "records.2", tmp_path / "records.1", path) == list(range(120, 145))
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_without_files_to_keep_the_file_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with opened(path, max_bytes=20, files_kept=0) as (file, _):
        for number in range(100, 105):
            file.write({"n": number})
    assert [each.name for each in tmp_path.iterdir()] == ["records"]
    assert lines_of(path) == [104]


def test_a_file_that_was_moved_away_is_begun_anew_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with opened(path) as (file, counted):
        file.write({"n": 1})
        counted.until(written=1)
        path.rename(tmp_path / "moved")
        file.write({"n": 2})
        counted.until(written=2)
        file.reopen()
        file.write({"n": 3})
    assert lines_of(tmp_path / "moved", path) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["no folder", "a folder", "a pipe"])
def test_what_cannot_be_written_costs_lines_and_one_log_line_until_it_can(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "below" / "records"
    mend: Callable[[], object] = path.parent.mkdir
    if kind != "no folder":
        path.parent.mkdir()
        if kind == "a folder":
            path.mkdir()
            mend = path.rmdir
        else:
            os.mkfifo(path)
            mend = path.unlink
    with opened(path) as (file, counted):
        for number in range(3):
            file.write({"n": number})
        counted.until(lost=3)
        mend()
        file.write({"n": 3})
        file.write({"n": 4})
        counted.until(written=2)
    assert lines_of(path) == [3, 4]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert str(path) in caplog.text
    assert "3 were lost" in caplog.text


def test_a_disk_that_is_full_in_the_middle_of_a_line_keeps_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "records"
    line = b'{"n":100}\n'
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as (file, counted):
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(line) * 2 + 3, hard))  # the third line fits in part
        try:
            for number in range(100, 104):
                file.write({"n": number})
            counted.until(written=2, lost=2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == b'{"n":100}\n{"n":101}\n'
        file.write({"n": 104})
    assert lines_of(path) == [100, 101, 104]


def test_a_line_that_is_too_long_goes_without_its_texts(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with opened(path) as (file, _):
        file.write({"n": 1, "prompts": ["x" * LINE_BYTES_MAX], "answers": ["y"]})
    assert json.loads(path.read_text()) == {"n": 1, "text_omitted": True}


def test_a_file_system_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def hang(line: object) -> bytes:
        assert hangs.wait(DEADLINE_SECONDS)
        return b"{}\n"

    monkeypatch.setattr(record_file, "_line_bytes", hang)
    counted = Counted()
    file = RecordFile(RecordFileSettings(tmp_path / "records"), counted)
    started = time.monotonic()
    for number in range(LINES_WAITING_MAX + 10):
        file.write({"n": number})
    file.reopen()
    file.close(0.01)
    assert time.monotonic() - started < DEADLINE_SECONDS
    assert counted.by_result["lost"] >= 9
    hangs.set()
