"""edgellm keys: the key alone on standard output, names in the list, the file of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgellm.api.keys import KeyRing
from edgellm.cli.main import main
from edgellm.service.api_keys import read_keys


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
    assert KeyRing(read_keys(Path(file))).client_of(key.encode()) == "alice"
    assert main(["keys", "list", "--api-keys-file", file]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("alice ")
    assert key not in listed
    assert main(["keys", "revoke", "alice", "--api-keys-file", file]) == 0
    assert "no key is left: the server refuses everybody" in capsys.readouterr().err
    assert main(["keys", "revoke", "alice", "--api-keys-file", file]) == 78


def test_the_file_is_that_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "edgellm.toml"
    config.write_text('[server]\napi_keys_file = "clients"\n')
    assert main(["keys", "add", "alice", "--config", str(config)]) == 0
    assert [key.name for key in read_keys(tmp_path / "clients")] == ["alice"]
    config.write_text("")
    assert main(["keys", "list", "--config", str(config)]) == 78
    err = capsys.readouterr().err
    assert f"server.api_keys_file is not set in {config} — set it there, or name the file" in err
