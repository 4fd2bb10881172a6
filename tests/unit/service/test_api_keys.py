"""A key file is one client a line; keys never appear in an error, and only hashes stay."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from edgellm.errors import ConfigError
from edgellm.service.api_keys import read_keys

KEY = "0123456789abcdef-secret"


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "keys"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_plain_and_hashed_keys_are_read(tmp_path: Path) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    keys = read_keys(write(tmp_path, f"# clients\n\nalice:{KEY}\nbob:sha256:{digest}\n"))
    assert [key.name for key in keys] == ["alice", "bob"]
    assert keys[0].sha256 == keys[1].sha256 == bytes.fromhex(digest)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no key"),
        ("# nothing\n", "holds no key"),
        (KEY, "line 1: expected name:key"),
        (f"../x:{KEY}", "line 1: expected name:key"),
        (f"a:{KEY}\na:{KEY}", "line 2: the client a is there twice"),
        ("a:short-secret", "line 1: a key needs at least 16 visible characters"),
        (f"a:{KEY} {KEY}", "line 1: a key needs at least 16 visible characters"),
        (f"a:sha256:{KEY}", "line 1: sha256: must be followed by 64 hexadecimal digits"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_without_the_key(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_keys(write(tmp_path, text))
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_open_to_every_user_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is open to every user — run: chmod 600"):
        read_keys(write(tmp_path, f"a:{KEY}", mode=0o644))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"api_keys_file .*absent: No such file"):
        read_keys(tmp_path / "absent")


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than"):
        read_keys(write(tmp_path, "#" * (2**20 + 1)))
