"""A key file is one client a line; keys never appear in an error, and only hashes stay."""

from __future__ import annotations

import errno
import hashlib
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgellm import durable_file
from edgellm.api.keys import KeyRing
from edgellm.errors import ConfigError
from edgellm.service.api_keys import add_key, read_keys, read_keys_left, revoke_key
from edgellm.serving.priority import Priority

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


def test_a_priority_may_follow_a_key(tmp_path: Path) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    keys = read_keys(write(tmp_path, f"a:{KEY} priority=high\nb:sha256:{digest}  priority=low\nc:{KEY}\n"))
    assert [key.priority for key in keys] == [Priority.HIGH, Priority.LOW, Priority.NORMAL]
    assert len({key.sha256 for key in keys}) == 1


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
        (f"a:{KEY} priority=urgent", "line 1: priority= must be followed by high, normal or low"),
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


def test_an_added_key_is_kept_as_its_hash_alone_and_is_right(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = add_key(file, "alice"), add_key(file, "bob")
    assert alice != bob
    text = file.read_text()
    assert alice not in text
    assert bob not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    ring = KeyRing(read_keys(file))
    assert [found and found.name for found in map(ring.find, (alice.encode(), bob.encode()))] == ["alice", "bob"]
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_a_revoked_key_is_gone_and_everything_else_stays(tmp_path: Path) -> None:
    file = write(tmp_path, f"# by hand\nbob:{KEY}\nbobby:{KEY}1", mode=0o640)
    alice = add_key(file, "alice")
    assert revoke_key(file, "bob") == 2
    assert file.read_text().startswith(f"# by hand\nbobby:{KEY}1\nalice:sha256:")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    found = KeyRing(read_keys(file)).find(alice.encode())
    assert found is not None
    assert found.name == "alice"
    assert (revoke_key(file, "bobby"), revoke_key(file, "alice")) == (1, 0)
    assert read_keys_left(file) == ()
    with pytest.raises(ConfigError, match=r"keys holds no client 'alice' — it has: none"):
        revoke_key(file, "alice")


@pytest.mark.parametrize("name", ["", "a b", "../x", "a:b", "#a", "-a", "x" * 65])
def test_a_client_needs_a_plain_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be a client's name"):
        add_key(tmp_path / "keys", name)
    assert not (tmp_path / "keys").exists()


def test_a_second_key_for_a_client_is_refused(tmp_path: Path) -> None:
    add_key(tmp_path / "keys", "alice")
    with pytest.raises(ConfigError, match="the client alice has a key — revoke it first"):
        add_key(tmp_path / "keys", "alice")


def test_what_is_wrong_with_the_file_is_said_before_it_is_changed(tmp_path: Path) -> None:
    file = write(tmp_path, "nonsense\n")
    with pytest.raises(ConfigError, match="line 1"):
        add_key(file, "alice")
    assert file.read_text() == "nonsense\n"
    with pytest.raises(ConfigError, match="make the folder"):
        add_key(tmp_path / "absent" / "keys", "alice")
    with pytest.raises(ConfigError, match="No such file"):
        revoke_key(tmp_path / "none", "alice")


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, f"bob:{KEY}\n")

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable_file.os, "fsync", fail)
    with pytest.raises(ConfigError, match="cannot be changed: No space left"):
        add_key(file, "alice")
    assert file.read_text() == f"bob:{KEY}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    file = write(tmp_path, f"bob:{KEY}\n")
    link = tmp_path / "link"
    link.symlink_to(file)
    add_key(link, "alice")
    assert link.is_symlink()
    assert [key.name for key in read_keys(file)] == ["bob", "alice"]


def test_clients_added_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    names = [f"client{number}" for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: add_key(tmp_path / "keys", name), names))
    assert sorted(key.name for key in read_keys(tmp_path / "keys")) == sorted(names)
