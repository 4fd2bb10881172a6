"""The open code on disk: it ends by the clock of its boot, and no reboot makes it last longer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edgellm.errors import ConfigError
from edgellm.service.pairing import open_code
from edgellm.service.pairing.open_code import OpenCode, boottime_seconds, read_open_code, write_open_code

KEY = b"k" * 32


@pytest.fixture
def boot_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "boot_id"
    file.write_text("first\n")
    monkeypatch.setattr(open_code, "BOOT_ID", file)
    return file


def reopened(folder: Path) -> OpenCode:
    code = read_open_code(folder)
    assert code is not None
    return code


def opened_for(folder: Path, seconds: float) -> None:
    write_open_code(folder, OpenCode(KEY, boottime_seconds() + seconds))


def test_it_is_closed_to_others_and_read_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "pairing"
    write_open_code(folder, OpenCode(KEY, boottime_seconds() + 600, 3, b"h" * 32, "laptop"))
    assert (folder / open_code.FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    code = reopened(folder)
    assert (code.verifier_key, code.refused_proofs, code.key_sha256, code.client) == (KEY, 3, b"h" * 32, "laptop")
    assert 590 < code.left_seconds <= 600


def test_one_whose_time_is_over_is_gone(tmp_path: Path) -> None:
    opened_for(tmp_path, -1)
    assert read_open_code(tmp_path) is None
    assert not (tmp_path / open_code.FILE_NAME).exists()


def test_the_clock_of_the_wall_does_not_count_within_a_boot(
    tmp_path: Path, boot_id: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_for(tmp_path, 600)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 590 < reopened(tmp_path).left_seconds <= 600


def test_after_a_reboot_it_is_valid_still(tmp_path: Path, boot_id: Path) -> None:
    opened_for(tmp_path, 600)
    boot_id.write_text("second")
    assert 530 < reopened(tmp_path).left_seconds <= 540


def test_time_without_power_counts(tmp_path: Path, boot_id: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_for(tmp_path, 600)
    boot_id.write_text("second")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)
    assert read_open_code(tmp_path) is None


def test_a_clock_that_starts_anew_each_boot_does_not_keep_it_alive(
    tmp_path: Path, boot_id: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    opened_for(tmp_path, 600)
    boots = 0
    while read_open_code(tmp_path) is not None:
        boots += 1
        boot_id.write_text(f"boot {boots}")
    assert boots == 600 / open_code.BOOT_COST_SECONDS


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"verifier_key": 1}', b"[" * 4096])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / open_code.FILE_NAME).write_bytes(content)
    with pytest.raises(ConfigError, match=r"open-code.json is damaged"):
        read_open_code(tmp_path)
