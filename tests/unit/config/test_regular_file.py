"""Only regular files are opened; whatever else is in their place is refused at once."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgellm.config import load_settings
from edgellm.config.regular_file import NotRegularFileError, open_regular
from edgellm.engines.archive.signing import read_private_key, read_trusted_keys
from edgellm.errors import ConfigError
from edgellm.service.api_keys import read_keys
from edgellm.service.private_ca import PrivateCa
from edgellm.service.tls import ServerCertificate

WAIT_SECONDS = 60


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
}


@pytest.fixture(autouse=True)
def nobody_waits() -> Iterator[None]:
    """A read that waits ends the test, not the run."""

    def end(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(WAIT_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=KINDS)
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "other"
    KINDS[request.param](path)
    return path


def test_what_is_no_regular_file_is_not_opened(other: Path) -> None:
    with pytest.raises(NotRegularFileError) as caught:
        open_regular(other)
    assert (caught.value.strerror, caught.value.filename) == ("not a regular file", str(other))


def test_a_link_is_followed_unless_it_must_not_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as stream:
        assert stream.read() == b"x"
    with pytest.raises(NotRegularFileError):
        open_regular(tmp_path / "link", follow_symlinks=False)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


@pytest.mark.parametrize(
    "read",
    [
        lambda path: load_settings(file=path, environ={}),
        read_keys,
        read_trusted_keys,
        read_private_key,
        lambda path: ServerCertificate(path, path),
    ],
    ids=["configuration", "API keys", "trusted keys", "signing key", "certificate"],
)
def test_no_file_of_an_operator_is_waited_for(other: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(ConfigError, match="not a regular file") as caught:
        read(other)
    assert str(other) in str(caught.value)


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_no_file_of_an_authority_is_waited_for(tmp_path: Path, name: str) -> None:
    authority = PrivateCa(tmp_path / "tls")
    authority.init(["board"])
    (authority.folder / name).unlink()
    os.mkfifo(authority.folder / name)
    with pytest.raises(ConfigError, match=f"{name}: not a regular file"):
        authority.init(["board"])
