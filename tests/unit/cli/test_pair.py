"""edgellm pair, before any board is there: each mistake in one line, and never the code."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from edgellm.cli.main import main
from edgellm.service.pairing.code import PairingCode

CODE = str(PairingCode.make())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 64, "the following arguments are required: HOST"),
        (["board", "12345"], 78, "a pairing code has 20 letters and digits, and this has 5"),
        ([CODE, "board"], 64, "the board's name comes first, then its code"),
        ([CODE], 64, "the board's name comes first, then its code"),
        (["http://board:8000", CODE], 64, "'http://board:8000' is no board's name or address — for example"),
        (["https://board:8000/v1", CODE], 64, "is no board's name or address"),
        (["board:99999", CODE], 64, "'board:99999' is no board's name or address"),
        (["user@board", CODE], 64, "is no board's name or address"),
        (["a b", CODE], 64, "'a b' is no board's name or address — for example"),
        (["edgellm-1a2b..local", CODE], 64, "'edgellm-1a2b..local' is no board's name or address — for example"),
        ([f"{'b' * 64}.local:8000", CODE], 64, "is no board's name or address"),
        (["edgellm-1a2b.invalid", CODE], 69, "nothing on this network has the name edgellm-1a2b.invalid — give the"),
        (["127.0.0.1", CODE, "--name", "my laptop"], 64, "--name 'my laptop': up to 48 letters, digits"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["pair", *arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert CODE not in error
    assert list(tmp_path.rglob("api-key*")) == []


def test_a_port_where_no_board_is_and_one_without_https_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert main(["pair", f"127.0.0.1:{port}", CODE]) == 69
    assert f"no board answers at 127.0.0.1:{port} (Connection refused)" in capsys.readouterr().err
