from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edgellm.engines import gguf_placement
from edgellm.engines.gguf_placement import place_file
from edgellm.engines.progress import Progress, ignore_progress

CONTENT = bytes(range(256)) * 5000


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copied in many small steps."""
    monkeypatch.setattr(gguf_placement, "COPY_BYTES", 100_001)
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


def refuse_with(number: int) -> object:
    def refuse(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("number", [0, errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP])
def test_the_bytes_arrive_whatever_the_file_system_can(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(gguf_placement.fcntl, "ioctl", refuse_with(errno.EOPNOTSUPP))
    if number:
        monkeypatch.setattr(os, "copy_file_range", refuse_with(number))
    seen: list[Progress] = []
    place_file(source, tmp_path / "target", seen.append)
    assert (tmp_path / "target").read_bytes() == CONTENT
    assert seen[-1].done_bytes == seen[-1].total_bytes == len(CONTENT)
    assert len(seen) > 10


def test_a_clone_needs_no_copy(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def clone(target: int, request: int, origin: int) -> int:
        os.pwrite(target, CONTENT, 0)
        return 0

    monkeypatch.setattr(gguf_placement.fcntl, "ioctl", clone)
    monkeypatch.setattr(os, "copy_file_range", refuse_with(errno.EIO))
    place_file(source, tmp_path / "target", ignore_progress)
    assert (tmp_path / "target").read_bytes() == CONTENT


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_real_failure_is_not_hidden(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(gguf_placement.fcntl, "ioctl", refuse_with(errno.EOPNOTSUPP))
    monkeypatch.setattr(os, "copy_file_range", refuse_with(number))
    with pytest.raises(OSError, match=os.strerror(number)):
        place_file(source, tmp_path / "target", ignore_progress)


def test_a_source_that_shrinks_meanwhile_is_noticed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_placement.fcntl, "ioctl", refuse_with(errno.EOPNOTSUPP))

    def shrink(progress: Progress) -> None:
        os.truncate(source, 200_000)

    with pytest.raises(OSError, match="became shorter while it was copied"):
        place_file(source, tmp_path / "target", shrink)


def test_an_existing_file_is_never_written_into(source: Path, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"kept")
    with pytest.raises(FileExistsError):
        place_file(source, tmp_path / "target", ignore_progress)
    assert (tmp_path / "target").read_bytes() == b"kept"
