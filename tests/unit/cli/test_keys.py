"""edgellm keys: the key alone on standard output, names in the list, the file of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgellm.api.keys import KeyRing
from edgellm.cli.main import main
from edgellm.service.api_keys import read_keys
from edgellm.serving.priority import Priority


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    for name in ("EDGELLM_CONFIG", "EDGELLM_SERVER_API_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_keys_are_added_listed_and_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "keys")
    assert main(["keys", "add", "alice", "--api-keys-file", file]) == 0
    added = capsys.readouterr()
    key = added.out.strip()
    assert key not in added.err
    found = KeyRing(read_keys(Path(file))).find(key.encode())
    assert found is not None
    assert (found.name, found.priority) == ("alice", Priority.NORMAL)
    assert main(["keys", "list", "--api-keys-file", file]) == 0
    listed = capsys.readouterr().out
    assert listed.split()[:2] == ["alice", "normal"]
    assert key not in listed
    assert main(["keys", "revoke", "alice", "--api-keys-file", file]) == 0
    assert "no key is left: the server refuses everybody" in capsys.readouterr().err
    assert main(["keys", "revoke", "alice", "--api-keys-file", file]) == 78


def test_a_key_has_the_priority_it_was_made_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys"
    for name, options in (("batch", ["--priority", "low"]), ("voice", ["--priority", "high"])):
        assert main(["keys", "add", name, *options, "--api-keys-file", str(file)]) == 0
    assert [(key.name, key.priority) for key in read_keys(file)] == [("batch", Priority.LOW), ("voice", Priority.HIGH)]
    capsys.readouterr()
    assert main(["keys", "list", "--api-keys-file", str(file)]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["batch", "low"], ["voice", "high"]]
    assert main(["keys", "add", "x", "--priority", "urgent", "--api-keys-file", str(file)]) == 64


def test_the_file_is_that_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "edgellm.toml"
    config.write_text('[server]\napi_keys_file = "clients"\n')
    assert main(["keys", "add", "alice", "--config", str(config)]) == 0
    assert [key.name for key in read_keys(tmp_path / "clients")] == ["alice"]
    config.write_text("")
    assert main(["keys", "list", "--config", str(config)]) == 78
    err = capsys.readouterr().err
    assert f"server.api_keys_file is not set in {config} — set it there, or name the file" in err
