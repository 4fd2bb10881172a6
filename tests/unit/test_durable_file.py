"""Files that are replaced whole: with their mode from the first moment, and their owner as before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgellm import durable_file
from edgellm.durable_file import make_private_folder, remove_unfinished, replace_link, write_durably


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_is_closed_to_others_whatever_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        write_durably(tmp_path / "key", b"secret")
        write_durably(tmp_path / "page", b"for all", 0o644)
        make_private_folder(tmp_path / "own")
    finally:
        os.umask(mask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"key": 0o600, "page": 0o644, "own": 0o700}


def test_what_a_kill_left_of_a_file_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [".key.backup", ".key.0123456789abcdefg", ".other.0123456789abcdef", "key", "key.0123456789abcdef"]
    for name in others:
        (tmp_path / name).write_bytes(b"kept")
    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", lambda *_: os._exit(9))
        child = os.fork()
        if child == 0:
            write_durably(tmp_path / "key", b"new")
        os.waitpid(child, 0)
    assert len(names_in(tmp_path)) == len(others) + 1
    remove_unfinished(tmp_path / "key")
    assert names_in(tmp_path) == sorted(others)


def test_a_file_that_cannot_be_written_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_bytes(b"old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_file.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_durably(tmp_path / "key", b"new")
    assert (tmp_path / "key").read_bytes() == b"old"
    assert names_in(tmp_path) == ["key"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_replaces_stays_its_owners(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"old")
    os.chown(tmp_path / "key", 1234, 4321)
    write_durably(tmp_path / "key", b"new", 0o640)
    status = (tmp_path / "key").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 4321, 0o640)
    assert (tmp_path / "key").read_bytes() == b"new"


def test_a_link_is_replaced_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    for target in ("one", "two"):
        replace_link(tmp_path / "link", target)
        assert str((tmp_path / "link").readlink()) == target
    assert names_in(tmp_path) == ["link"]
