"""Credentials that systemd copied: what changes at their source counts at once, and what a unit has of others stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgellm.cli import tls as tls_verb
from edgellm.cli.main import main
from edgellm.config import Settings
from edgellm.durable_file import write_durably
from edgellm.errors import ConfigError
from edgellm.service import credentials, private_ca
from edgellm.service.api_keys import read_keys
from edgellm.service.credentials import UNIT_FOLDER, CredentialSources, give_certificate, handed_next
from edgellm.service.private_ca import PrivateCa
from edgellm.service.tls import check_certificate

KEYS = "alice:alices-long-secret-key\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As tmpfiles.d makes it."""
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o2750)
    return folder


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """As systemd makes it."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def settings(copies: Path) -> Settings:
    server = {"api_keys_file": copies / "api-keys", "tls_certificate_file": copies / "tls-certificate"}
    return Settings.model_validate({"server": {**server, "tls_key_file": "/elsewhere/key"}})


def test_a_copy_s_source_is_read_in_its_place(folder: Path, copies: Path) -> None:
    for place in (folder, copies):
        (place / "api-keys").write_text(KEYS)
    sources = CredentialSources.of({"CREDENTIALS_DIRECTORY": str(copies)}, folder)
    server = sources.applied_to(settings(copies)).server
    assert server.api_keys_file == folder / "api-keys"
    # There is no source of these.
    assert (server.tls_certificate_file, server.tls_key_file) == (copies / "tls-certificate", Path("/elsewhere/key"))
    # What it was at the start holds on: an older copy does not count again.
    (folder / "api-keys").unlink()
    assert sources.applied_to(settings(copies)).server.api_keys_file == folder / "api-keys"


def test_a_copy_of_another_file_counts_itself(folder: Path, copies: Path) -> None:
    (folder / "api-keys").write_text(KEYS)
    (copies / "api-keys").write_text("bob:bobs-long-secret-key\n")
    sources = CredentialSources.of({"CREDENTIALS_DIRECTORY": str(copies)}, folder)
    assert sources.applied_to(settings(copies)) == settings(copies)


def test_a_source_that_changed_after_the_copy_was_made_counts(folder: Path, copies: Path) -> None:
    (copies / "api-keys").write_text(KEYS)
    (folder / "api-keys").write_text("bob:bobs-long-secret-key\n")
    sources = CredentialSources.of({"CREDENTIALS_DIRECTORY": str(copies)}, folder)
    assert sources.applied_to(settings(copies)).server.api_keys_file == folder / "api-keys"


def test_a_source_that_may_not_be_read_counts_as_soon_as_it_may(
    folder: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "api-keys").write_text(KEYS)
    (copies / "api-keys").write_text(KEYS)
    closed, readable = folder / "api-keys", credentials._content
    monkeypatch.setattr(credentials, "_content", lambda path: None if path == closed else readable(path))
    sources = CredentialSources.of({"CREDENTIALS_DIRECTORY": str(copies)}, folder)
    assert sources.applied_to(settings(copies)) == settings(copies)
    assert sources.awaited(copies / "api-keys") == [closed]
    (warning,) = sources.warnings()
    assert f"may not read {closed}" in warning
    assert f"chmod 640 {closed}" in warning
    monkeypatch.undo()
    assert sources.applied_to(settings(copies)).server.api_keys_file == closed
    assert (sources.awaited(copies / "api-keys"), sources.warnings()) == ([], [])


def test_what_the_next_start_is_handed_is_the_source_unless_a_drop_in_may_name_another(tmp_path: Path) -> None:
    folder, drop_ins = tmp_path / "credentials", tmp_path / "edgellm.service.d"
    copy = UNIT_FOLDER / "tls-key"
    assert handed_next(copy, folder, [drop_ins]) == folder / "tls-key"
    assert handed_next(tmp_path / "tls-key", folder, [drop_ins]) is None
    drop_ins.mkdir()
    (drop_ins / "10-log.conf").write_text("[Service]\nEnvironment=EDGELLM_LOG_LEVEL=debug\n")
    assert handed_next(copy, folder, [drop_ins]) == folder / "tls-key"
    (drop_ins / "20-own.conf").write_text("[Service]\nLoadCredential=tls-key:/etc/letsencrypt/key.pem\n")
    assert handed_next(copy, folder, [drop_ins]) is None


def test_a_renewal_cut_short_at_any_copy_leaves_a_pair_that_fits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = PrivateCa(tmp_path / "tls")
    made.init(["board.example"])
    give_certificate(made, folder)
    writes = 0

    def write_cut(path: Path, content: bytes, mode: int = 0o600) -> None:
        nonlocal writes
        if writes == 0:
            raise KeyboardInterrupt
        writes -= 1
        write_durably(path, content, mode)

    for module in (credentials, private_ca):
        monkeypatch.setattr(module, "write_durably", write_cut)
    cuts = 0
    for cuts in range(10):
        writes = cuts
        try:
            made.init([f"cut-{cuts}.example"])
            give_certificate(made, folder)
        except KeyboardInterrupt:
            check_certificate(made.server_certificate, made.server_key)
            check_certificate(folder / "tls-certificate", folder / "tls-key")
        else:
            break
    assert cuts == 4  # one certificate, and three copies


@pytest.mark.parametrize("environ", [{}, {"CREDENTIALS_DIRECTORY": ""}, {"CREDENTIALS_DIRECTORY": "/nowhere"}])
def test_without_copies_nothing_changes(folder: Path, copies: Path, environ: dict[str, str]) -> None:
    (folder / "api-keys").write_text(KEYS)
    assert CredentialSources.of(environ, folder).applied_to(settings(copies)) == settings(copies)


def test_a_certificate_is_given_where_there_is_none_or_one_of_the_same_authority(folder: Path, tmp_path: Path) -> None:
    made, other = PrivateCa(tmp_path / "tls"), PrivateCa(tmp_path / "other")
    made.init(["board.example"])
    other.init(["board.example"])
    assert give_certificate(made, folder)
    assert (folder / "tls-certificate").read_bytes() == made.server_certificate.read_bytes()
    assert (folder / "tls-key").stat().st_mode & 0o777 == 0o640
    assert (folder / "tls-key").stat().st_gid == folder.stat().st_gid
    made.init(["renewed.example"])
    assert give_certificate(made, folder)
    assert (folder / "tls-certificate").read_bytes() == made.server_certificate.read_bytes()
    assert not give_certificate(other, folder)
    assert (folder / "tls-certificate").read_bytes() == made.server_certificate.read_bytes()
    earlier = made.ca_certificate.read_bytes()
    made.init(["board"], new_authority=True)
    assert not give_certificate(made, folder)
    assert give_certificate(made, folder, earlier)
    for name, source in (("tls-certificate", made.server_certificate), ("tls-authority", made.ca_certificate)):
        assert (folder / name).read_bytes() == source.read_bytes()
    (folder / "tls-authority").unlink()  # a certificate of somebody else's
    assert not give_certificate(made, folder)
    assert not give_certificate(made, tmp_path / "nowhere")


def test_what_is_said_of_a_certificate_is_what_the_service_can_do_with_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "tls"
    monkeypatch.setattr(credentials, "FOLDER", folder)
    monkeypatch.setattr(credentials, "AUTHORITY_FOLDER", own)
    monkeypatch.setattr(tls_verb, "_default_folder", lambda: own)
    assert main(["tls", "init"]) == 0
    said = capsys.readouterr().out
    assert 'tls_key_file = "/run/credentials/edgellm.service/tls-key"\n' in said
    assert f"put copies into {folder}" in said
    assert str(own / "server.key") not in said
    (folder / "tls-authority").write_text("another\n")
    assert main(["tls", "init"]) == 0
    said = capsys.readouterr().out
    assert f"install -m 640 -g edgellm {own}/server.key {folder}/tls-key\n" in said
    elsewhere = tmp_path / "elsewhere"
    assert main(["tls", "init", "--folder", str(elsewhere)]) == 0
    said = capsys.readouterr().out
    assert f'tls_key_file = "{elsewhere}/server.key"\n' in said
    assert "a running server takes a renewed certificate by itself" in said


def test_the_way_to_a_key_names_no_copy_of_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "api-keys"
    keys.write_text("# none\n")
    keys.chmod(0o600)
    with pytest.raises(ConfigError, match=r"edgellm keys add NAME --api-keys-file /"):
        read_keys(keys)
    monkeypatch.setattr("edgellm.service.api_keys.UNIT_FOLDER", tmp_path)
    with pytest.raises(ConfigError, match=r"edgellm keys add NAME$"):
        read_keys(keys)
