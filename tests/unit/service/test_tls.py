"""Certificates: what tls init makes is right by strict rules, and wrong files are named before they are used."""

from __future__ import annotations

import socket
import ssl
import stat
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from edgellm.errors import ConfigError
from edgellm.service import private_ca
from edgellm.service.host_names import certificate_names, interface_addresses
from edgellm.service.private_ca import CA_DAYS, SERVER_DAYS, PrivateCa
from edgellm.service.tls import (
    ServerCertificate,
    authority_beside,
    check_certificate,
    name_problem,
    validity_problems,
)

NAMES = ["board", "board.local", "127.0.0.1", "::1"]


@pytest.fixture
def authority(tmp_path: Path) -> PrivateCa:
    made = PrivateCa(tmp_path / "tls")
    assert made.init(NAMES)
    return made


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def connects(server: ssl.SSLContext, trusted: Path, name: str) -> bool:
    """A handshake in memory, verified by the strictest rules that OpenSSL has."""
    client = ssl.create_default_context(cafile=trusted)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
            waiting.remove(end)
        if not waiting:
            return True
    raise AssertionError("the handshake did not end")


def test_a_certificate_is_right_until_names_key_authority_or_time_are_not(
    authority: PrivateCa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert authority.is_right_for([])
    assert authority.is_right_for(["board", "::1"])
    assert not authority.is_right_for(["board", "llm.example.org"])
    key = authority.server_key.read_bytes()
    other = PrivateCa(tmp_path / "other")
    other.init(NAMES)
    authority.server_key.write_bytes(other.server_key.read_bytes())
    assert not authority.is_right_for([])
    authority.server_certificate.write_bytes(other.server_certificate.read_bytes())
    assert not authority.is_right_for([])  # the two fit, and are another authority's
    authority.server_certificate.unlink()
    assert not authority.is_right_for([])
    monkeypatch.setattr(private_ca, "SERVER_DAYS", 20)
    assert not authority.init(NAMES)
    assert authority.server_key.read_bytes() != key
    assert not authority.is_right_for([])
    with pytest.raises(ConfigError, match="can be no name of a server"):
        authority.is_right_for(["two words"])


def test_a_strict_client_accepts_every_name_of_the_certificate_and_no_other(authority: PrivateCa) -> None:
    server = ServerCertificate(authority.server_certificate, authority.server_key)
    assert server.paths == (authority.server_certificate, authority.server_key)
    assert server.context.minimum_version is ssl.TLSVersion.TLSv1_2
    for name in NAMES:
        assert connects(server.context, authority.ca_certificate, name)
    assert not connects(server.context, authority.ca_certificate, "evil.example")


def test_keys_are_closed_and_validities_bounded(authority: PrivateCa) -> None:
    for key in (authority.ca_key, authority.server_key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert sorted(path.name for path in authority.folder.iterdir()) == ["ca.crt", "ca.key", "server.crt", "server.key"]
    for path, days in ((authority.ca_certificate, CA_DAYS), (authority.server_certificate, SERVER_DAYS)):
        one = certificate(path)
        assert one.not_valid_after_utc - one.not_valid_before_utc <= timedelta(days=days)
        assert one.not_valid_before_utc < datetime.now(UTC)


def test_a_second_init_renews_the_certificate_under_the_same_authority(authority: PrivateCa) -> None:
    ca, before = authority.ca_certificate.read_bytes(), certificate(authority.server_certificate)
    assert not authority.init([*NAMES, "new.example"])
    assert authority.ca_certificate.read_bytes() == ca
    assert certificate(authority.server_certificate).serial_number != before.serial_number
    renewed = ServerCertificate(authority.server_certificate, authority.server_key)
    assert connects(renewed.context, authority.ca_certificate, "new.example")


def test_a_renewal_keeps_the_key_so_that_no_cut_parts_it_from_its_certificate(authority: PrivateCa) -> None:
    key, before = authority.server_key.read_bytes(), authority.server_certificate.read_bytes()
    # The key of the one goes with the certificate of the other, both ways.
    assert not authority.init(["renewed.example"])
    assert authority.server_key.read_bytes() == key
    check_certificate(authority.server_certificate, authority.server_key)
    authority.server_certificate.write_bytes(before)
    check_certificate(authority.server_certificate, authority.server_key)


@pytest.mark.parametrize("spoil", ["open", "damaged", "absent", "of another kind"])
def test_a_key_that_is_not_fit_is_made_anew(authority: PrivateCa, spoil: str) -> None:
    key = authority.server_key.read_bytes()
    match spoil:
        case "open":
            authority.server_key.chmod(0o644)
        case "damaged":
            authority.server_key.write_bytes(key[: len(key) // 2])
        case "absent":
            authority.server_key.unlink()
        case _:
            other = ed25519.Ed25519PrivateKey.generate()
            authority.server_key.write_bytes(
                other.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
            )
    assert not authority.init(NAMES)
    assert authority.server_key.read_bytes() != key
    assert stat.S_IMODE(authority.server_key.stat().st_mode) == 0o600
    check_certificate(authority.server_certificate, authority.server_key)


def test_a_new_authority_leaves_the_server_its_key(authority: PrivateCa) -> None:
    """So that no cut parts it from the certificate that the service has of the earlier one."""
    key, before = authority.server_key.read_bytes(), authority.server_certificate.read_bytes()
    assert authority.init(NAMES, new_authority=True)
    assert authority.server_key.read_bytes() == key
    check_certificate(authority.server_certificate, authority.server_key)
    authority.server_certificate.write_bytes(before)
    check_certificate(authority.server_certificate, authority.server_key)


def test_a_reload_changes_new_connections_and_a_failed_one_nothing(authority: PrivateCa, tmp_path: Path) -> None:
    server = ServerCertificate(authority.server_certificate, authority.server_key)
    authority.init(["other.example"])
    assert connects(server.context, authority.ca_certificate, "board")
    server.reload()
    assert connects(server.context, authority.ca_certificate, "other.example")
    authority.server_certificate.write_text("nonsense")
    with pytest.raises(ConfigError, match="not PEM files that can be used"):
        server.reload()
    assert connects(server.context, authority.ca_certificate, "other.example")


def test_wrong_files_are_named(authority: PrivateCa, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    remedy = "give another file, or run: edgellm tls init"
    with pytest.raises(ConfigError, match=rf"tls_key_file .*absent: No such file or directory — {remedy}"):
        ServerCertificate(authority.server_certificate, absent)
    with pytest.raises(ConfigError, match="absent"):
        ServerCertificate(absent, authority.server_key)
    locked = tmp_path / "locked.key"
    key = serialization.load_pem_private_key(authority.server_key.read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    locked.chmod(0o600)
    with pytest.raises(ConfigError, match="its key without a password"):
        ServerCertificate(authority.server_certificate, locked)
    authority.server_key.chmod(0o604)
    with pytest.raises(ConfigError, match="open to every user"):
        ServerCertificate(authority.server_certificate, authority.server_key)


def test_a_machine_that_got_another_name_since_is_said_to_have(
    authority: PrivateCa, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    authority.init(certificate_names())
    server = ServerCertificate(authority.server_certificate, authority.server_key)
    assert (caplog.text, name_problem(authority.server_certificate)) == ("", None)
    monkeypatch.setattr(socket, "gethostname", lambda: "Renamed.example.com")
    server.reload()
    assert f"{authority.server_certificate} is not for renamed.local, as this machine is called now" in caplog.text
    assert "that name refuse it — run: sudo edgellm tls init" in caplog.text
    authority.init(certificate_names())
    assert name_problem(authority.server_certificate) is None


def test_names_of_certificates_of_others_are_their_owners_own(
    authority: PrivateCa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_ca, "AUTHORITY_NAME", "A public authority ")
    public = PrivateCa(authority.folder / "public")
    public.init(["api.example.com"])
    assert name_problem(public.server_certificate) is None
    assert name_problem(authority.ca_certificate) is None
    assert name_problem(authority.ca_key) is None


@pytest.mark.parametrize(("days", "level"), [(40, ""), (29, "WARNING"), (1, "ERROR")])
def test_the_end_of_a_certificate_is_said_before_it_comes(
    days: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(private_ca, "SERVER_DAYS", days)
    monkeypatch.setattr(private_ca, "CLOCK_SKEW", timedelta(days=2) if level == "ERROR" else timedelta())
    made = PrivateCa(tmp_path)
    made.init(certificate_names())
    ServerCertificate(made.server_certificate, made.server_key)
    assert [record.levelname for record in caplog.records] == ([level] if level else [])


class Ahead(datetime):
    """A clock that goes 400 days ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(days=400)


def test_an_authority_that_was_made_while_the_clock_was_ahead_is_said_and_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = PrivateCa(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(private_ca, "datetime", Ahead)
        made.init(certificate_names())
    server = ServerCertificate(made.server_certificate, made.server_key, made.ca_certificate)
    assert not connects(server.context, made.ca_certificate, "localhost")
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert f"the certificate {made.server_certificate} is not valid before" in caplog.text
    assert f"the authority {made.ca_certificate} is not valid before" in caplog.text
    assert "where it is right, sudo edgellm tls init --new-authority makes another" in caplog.text
    assert not made.is_right_for([])
    with pytest.raises(ConfigError, match=r"ca\.crt is not valid before .* set the clock; .* give --new-authority"):
        made.init(certificate_names())
    earlier = made.ca_certificate.read_bytes()
    assert made.init(certificate_names(), new_authority=True)
    assert made.ca_certificate.read_bytes() != earlier
    server.reload()
    assert connects(server.context, made.ca_certificate, "localhost")
    assert not list(validity_problems(made.server_certificate, made.ca_certificate))


def test_a_certificate_alone_that_is_not_valid_yet_is_renewed_under_its_authority(
    authority: PrivateCa, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(private_ca, "datetime", Ahead)
        authority.init(NAMES)
    (problem,) = validity_problems(authority.server_certificate, authority.ca_certificate)
    assert "where it is right, edgellm tls init renews it" in problem.text
    assert not authority.is_right_for(NAMES)
    assert not authority.init(NAMES)
    assert not list(validity_problems(authority.server_certificate, authority.ca_certificate))
    assert authority.is_right_for(NAMES)


def test_every_certificate_of_a_chain_has_to_be_valid(authority: PrivateCa, monkeypatch: pytest.MonkeyPatch) -> None:
    other = PrivateCa(authority.folder / "other")
    with monkeypatch.context() as patched:
        patched.setattr(private_ca, "datetime", Ahead)
        other.init(NAMES)
    with authority.server_certificate.open("ab") as chain:
        chain.write(other.ca_certificate.read_bytes())
    (problem,) = validity_problems(authority.server_certificate, None)
    assert "is not valid before" in problem.text


def test_an_authority_that_has_ended_is_said_with_the_option_that_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_ca, "CLOCK_SKEW", timedelta(days=2))
    made = PrivateCa(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(private_ca, "CA_DAYS", 1)
        with pytest.raises(ConfigError, match="has ended — give --new-authority"):
            made.init(NAMES)
    assert [one.text for one in validity_problems(made.ca_certificate, None) if "ended on" in one.text]
    assert made.init(NAMES, new_authority=True)


@pytest.mark.parametrize("name", ["", "a..b", "two words", "bücher.example", "*.example.org", "a/b"])
def test_a_name_that_no_certificate_holds_is_refused_before_anything_is_made(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can be no name of a server"):
        PrivateCa(tmp_path / "tls").init(["board", name])
    assert not (tmp_path / "tls").exists()


def test_an_authority_of_others_is_not_touched(authority: PrivateCa, tmp_path: Path) -> None:
    other = PrivateCa(tmp_path / "other")
    other.init(["board"])
    authority.ca_key.write_bytes(other.ca_key.read_bytes())
    with pytest.raises(ConfigError, match="is not the key of"):
        authority.init(NAMES)
    authority.ca_key.write_text("nonsense")
    with pytest.raises(ConfigError, match="not those of edgellm tls init"):
        authority.init(NAMES)
    authority.ca_key.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        authority.init(NAMES)
    assert authority.ca_certificate.exists()


def test_the_names_of_this_machine_are_those_that_clients_use() -> None:
    names = certificate_names(["llm.example.org"])
    assert {"localhost", "127.0.0.1", "llm.example.org", *interface_addresses()} <= set(names)
    assert any(name.endswith(".local") for name in names)
    assert len(names) == len(set(names))


def test_the_authority_is_found_beside_the_certificate_that_it_made(authority: PrivateCa, tmp_path: Path) -> None:
    assert authority_beside(authority.server_certificate) == authority.ca_certificate
    assert authority_beside(tmp_path / "server.crt") is None
