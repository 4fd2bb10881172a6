"""A certificate authority of one's own, for machines that no public one vouches for: clients trust its ``ca.crt``."""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edgellm.config.regular_file import open_regular
from edgellm.durable_file import write_durably
from edgellm.errors import ConfigError
from edgellm.service.tls import (
    AUTHORITY_FILE,
    AUTHORITY_NAME,
    CERTIFICATE_BYTES_MAX,
    EXPIRY_WARNING_DAYS,
    NEW_AUTHORITY_OPTION,
    check_certificate,
)

CA_DAYS = 3_650
SERVER_DAYS = 825  # the most that clients of every kind accept of a private authority
CLOCK_SKEW = timedelta(days=1)  # a board without a battery may start in the past
COMMON_NAME_CHARACTERS_MAX = 64
CERTIFICATE_MODE = 0o644
_FOR_A_NEW_ONE = f"give {NEW_AUTHORITY_OPTION} for another one, and pair its clients anew"


@dataclass(frozen=True, slots=True)
class PrivateCa:
    """The files of one folder; keys are closed to other users."""

    folder: Path

    @property
    def ca_certificate(self) -> Path:
        return self.folder / AUTHORITY_FILE

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def server_certificate(self) -> Path:
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    def init(self, names: Sequence[str], *, new_authority: bool = False) -> bool:
        """Make the authority where there is none, and a new server certificate for ``names`` (DNS names, addresses).

        The server keeps its key: whatever of a renewal a kill or power cut leaves, here or in copies, fits together.
        One that is damaged, or open to every user, is replaced.
        With ``new_authority`` it takes the place of the one that is there, which clients trust in vain from then on.

        Returns whether the authority is new. Raises ConfigError for a name that no certificate can hold, or a folder
        that is not fit.
        """
        alternatives = [_alternative(name) for name in dict.fromkeys(names)]
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o755)
            is_new = new_authority or not (self.ca_certificate.exists() or self.ca_key.exists())
            if is_new:
                self._make_ca(names[0])
            self._make_server(names[0], alternatives, self._kept_key())
        except (FileExistsError, NotADirectoryError):
            raise ConfigError(f"{self.folder} is not a folder, or lies below a file — name another --folder") from None
        except OSError as error:
            raise ConfigError(f"{error.filename or self.folder}: {error.strerror}") from None
        return is_new

    def present_authority(self) -> bytes | None:
        """Its certificate as it lies there; None where there is none that can be read."""
        try:
            return _content(self.ca_certificate)
        except ConfigError:
            return None

    def is_right_for(self, names: Sequence[str]) -> bool:
        """Whether the server certificate is there, of this authority and this key, has ``names`` and does not end soon.

        Raises ConfigError for a name that no certificate can hold.
        """
        wanted = {_alternative(name) for name in names}
        try:
            check_certificate(self.server_certificate, self.server_key)
            certificate = x509.load_pem_x509_certificate(_content(self.server_certificate))
            _, authority = self._authority()
            certificate.verify_directly_issued_by(authority)
            held = set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        except (ConfigError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        now = datetime.now(UTC)
        lasts = certificate.not_valid_after_utc > now + timedelta(days=EXPIRY_WARNING_DAYS)
        return wanted <= held and certificate.not_valid_before_utc <= now and lasts

    def _make_ca(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _common_name(f"{AUTHORITY_NAME}{name}")
        certificate = (
            _builder(subject, subject, key, CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_durably(self.ca_key, _pem(key))
        write_durably(self.ca_certificate, certificate.public_bytes(serialization.Encoding.PEM), CERTIFICATE_MODE)

    def _kept_key(self) -> ec.EllipticCurvePrivateKey | None:
        try:
            with open_regular(self.server_key) as stream:
                is_open = bool(os.fstat(stream.fileno()).st_mode & stat.S_IRWXO)
                key = serialization.load_pem_private_key(stream.read(CERTIFICATE_BYTES_MAX), password=None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
            return None
        return key if isinstance(key, ec.EllipticCurvePrivateKey) and not is_open else None

    def _make_server(
        self, name: str, alternatives: Sequence[x509.GeneralName], kept_key: ec.EllipticCurvePrivateKey | None
    ) -> None:
        ca_key, ca = self._authority()
        key = kept_key or ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_common_name(name), ca.subject, key, SERVER_DAYS, latest=ca.not_valid_after_utc)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        # A daemon that reads the two in between finds that they do not fit, and keeps what it has until they do.
        if kept_key is None:
            write_durably(self.server_key, _pem(key))
        write_durably(self.server_certificate, certificate.public_bytes(serialization.Encoding.PEM), CERTIFICATE_MODE)

    def _authority(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        try:
            key = serialization.load_pem_private_key(_content(self.ca_key), password=None)
            certificate = x509.load_pem_x509_certificate(_content(self.ca_certificate))
        except (ValueError, TypeError):
            raise ConfigError(
                f"{self.ca_key} and {self.ca_certificate} are not those of edgellm tls init — name another --folder"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ConfigError(f"{self.ca_key} is not the key of {self.ca_certificate} — name another --folder")
        now = datetime.now(UTC)
        if certificate.not_valid_after_utc <= now:
            raise ConfigError(f"{self.ca_certificate} has ended — {_FOR_A_NEW_ONE}")
        if certificate.not_valid_before_utc > now:
            raise ConfigError(
                f"{self.ca_certificate} is not valid before {certificate.not_valid_before_utc}, and this machine's "
                f"clock says {now:%Y-%m-%d %H:%M} UTC — set the clock; where it is right, {_FOR_A_NEW_ONE}"
            )
        return key, certificate


def _content(path: Path) -> bytes:
    try:
        with open_regular(path) as stream:
            return stream.read(CERTIFICATE_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror} — put it back, or name another --folder") from None


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    labels = name.split(".")
    if not name.isascii() or not all(label and label.replace("-", "").replace("_", "").isalnum() for label in labels):
        raise ConfigError(f"{name!r} can be no name of a server — give a DNS name or an address")
    return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    begins = datetime.now(UTC) - CLOCK_SKEW
    ends = begins + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends if latest is None else min(ends, latest))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:COMMON_NAME_CHARACTERS_MAX])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
