"""TLS of the daemon: one certificate and key from files, which may be replaced while it runs."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from edgellm.config.regular_file import open_regular
from edgellm.errors import ConfigError

EXPIRY_WARNING_DAYS = 30
CERTIFICATE_BYTES_MAX = 2**20
AUTHORITY_FILE = "ca.crt"
NEW_AUTHORITY_OPTION = "--new-authority"  # of edgellm tls init
AUTHORITY_NAME = "edgellm CA of "  # and the machine's
PEM_BEGIN, PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"

# Of OpenSSL: not valid yet, and valid no more.
_TIME_PROBLEMS = {9: "is not valid yet", 10: "is valid no more"}

_log = logging.getLogger(__name__)


class ServerCertificate:
    """``context`` is for the listening socket; ``reload`` changes it for the connections that come after."""

    def __init__(self, certificate: Path, key: Path, authority: Path | None = None) -> None:
        """``authority`` is the one that clients are given. Raises ConfigError that names the file."""
        self._certificate = certificate
        self._key = key
        self._authority = authority
        self.context = _context()
        self.reload()

    @property
    def paths(self) -> tuple[Path, Path]:
        return self._certificate, self._key

    def check(self) -> None:
        """Raises what ``reload`` would."""
        check_certificate(self._certificate, self._key)

    def reload(self) -> None:
        """Raises ConfigError, and keeps what it has, when the files are missing, damaged or do not fit together."""
        self.check()
        _load(self.context, self._certificate, self._key)
        for found in validity_problems(self._certificate, self._authority):
            _log.log(found.level, "%s", found.text)
        if problem := name_problem(self._certificate):
            _log.warning("%s", problem)


def check_certificate(certificate: Path, key: Path) -> None:
    """Raises ConfigError when the files are missing, damaged or do not fit together."""
    _check_access(key)
    _load(_context(), certificate, key)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        open_regular(certificate).close()  # OpenSSL would wait for a pipe
        # The empty password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "KEY_VALUES_MISMATCH" in reason:
            raise ConfigError(
                f"server.tls_key_file {key} is not the key of {certificate} — give the two that were made together, or "
                "run: edgellm tls init"
            ) from None
        raise ConfigError(
            f"server.tls_certificate_file {certificate} with server.tls_key_file {key}: not PEM files that can be used "
            "— give a certificate (with its chain) and its key without a password, or run: edgellm tls init"
        ) from None
    except OSError as error:
        raise ConfigError(f"server.tls_certificate_file {certificate}: {_access_refusal(error)}") from None


def _check_access(key: Path) -> None:
    try:
        with open_regular(key) as stream:
            mode = os.fstat(stream.fileno()).st_mode
    except OSError as error:
        raise ConfigError(f"server.tls_key_file {key}: {_access_refusal(error)}") from None
    if stat.S_IMODE(mode) & stat.S_IRWXO:
        raise ConfigError(f"server.tls_key_file {key} is open to every user — run: chmod 600 {key}")


def _access_refusal(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"{error.strerror} — let the user that runs edgellm read it: chgrp edgellm FILE, and chmod 640 FILE"
    return f"{error.strerror} — give another file, or run: edgellm tls init"


def fingerprint_of(certificate: Path) -> str | None:
    """SHA-256 of the certificate as it is shown to clients, in hexadecimal. None where it cannot be read now."""
    try:
        with open_regular(certificate) as stream:
            text = stream.read(CERTIFICATE_BYTES_MAX).decode("ascii", errors="replace")
        begin, end = text.index(PEM_BEGIN), text.index(PEM_END) + len(PEM_END)
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[begin:end])).hexdigest()
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ValidityProblem:
    """``level`` is that of logging: an error where clients refuse what there is by now."""

    level: int
    text: str


def validity_problems(certificate: Path, authority: Path | None) -> Iterator[ValidityProblem]:
    """By this machine's clock, of the certificate with its chain and of the authority. What cannot be read has none."""
    renewal = "edgellm tls init renews it"
    yield from _validity_problems(f"the certificate {certificate}", certificate, renewal)
    if authority is not None:
        anew = f"sudo edgellm tls init {NEW_AUTHORITY_OPTION} makes another, which every client is to be given anew"
        yield from _validity_problems(f"the authority {authority}", authority, anew)


def _validity_problems(subject: str, file: Path, renewal: str) -> Iterator[ValidityProblem]:
    from cryptography import x509

    try:
        with open_regular(file) as stream:
            chain = x509.load_pem_x509_certificates(stream.read(CERTIFICATE_BYTES_MAX))
    except (OSError, ValueError):
        return
    begins, ends = max(one.not_valid_before_utc for one in chain), min(one.not_valid_after_utc for one in chain)
    now = datetime.now(UTC)
    if begins > now:
        yield ValidityProblem(
            logging.ERROR,
            f"{subject} is not valid before {begins}, and this machine's clock says {now:%Y-%m-%d %H:%M} UTC: clients "
            f"refuse it — set the clock; where it is right, {renewal}",
        )
    if ends <= now:
        yield ValidityProblem(logging.ERROR, f"{subject} ended on {ends}: clients refuse it; {renewal}")
    elif ends <= now + timedelta(days=EXPIRY_WARNING_DAYS):
        yield ValidityProblem(logging.WARNING, f"{subject} ends on {ends}; {renewal}")


def name_problem(certificate: Path) -> str | None:
    """Of a certificate of ``edgellm tls init``, which has the names of then. None where it has that of now."""
    from cryptography import x509

    try:
        with open_regular(certificate) as stream:
            held = x509.load_pem_x509_certificate(stream.read(CERTIFICATE_BYTES_MAX))
        names = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return None
    issuer = [str(one.value) for one in held.issuer.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    name = f"{socket.gethostname().lower().partition('.')[0]}.local"
    if not any(one.startswith(AUTHORITY_NAME) for one in issuer) or name in names.get_values_for_type(x509.DNSName):
        return None
    return (
        f"the certificate {certificate} is not for {name}, as this machine is called now: clients that come by that "
        "name refuse it — run: sudo edgellm tls init"
    )


def authority_beside(certificate: Path) -> Path | None:
    """The authority that ``edgellm tls init`` made the certificate with, when it lies in the same folder."""
    authority = certificate.parent / AUTHORITY_FILE
    return authority if authority.is_file() else None


def time_problem(error: ssl.SSLCertVerificationError) -> str | None:
    """For a client, whose clock is as likely wrong as the certificate is; None where time is not the problem."""
    problem = _TIME_PROBLEMS.get(error.verify_code)
    if problem is None:
        return None
    return (
        f"{problem} by this machine's clock, which says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC — set the clock; where "
        "it is right, set that of the server's machine, and make a new certificate there: edgellm tls init"
    )
