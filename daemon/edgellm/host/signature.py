"""Signatures by ssh-keygen, which every board has: files of a release that somebody vouches for.

A trusted key is a line of OpenSSH's public keys in /etc/edgellm/trusted-keys/NAME.pub. Where there is one, nothing
unsigned is taken.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgellm.durable_file import write_durably
from edgellm.errors import ReleaseUntrustedError
from edgellm.host.commands import attempt
from edgellm.host.disk_room import write_failure
from edgellm.host.paths import HostPaths

BUNDLE_NAMESPACE = "edgellm-bundle"
SIGNATURE_SUFFIX = ".sig"
SIGNER = "edgellm"
KEY_FILE_BYTES_MAX = 16_384
SIGNATURE_BYTES_MAX = 16_384
_KEY = re.compile(r"(ssh-ed25519|ecdsa-sha2-\S+|sk-\S+|ssh-rsa|rsa-sha2-\S+) [A-Za-z0-9+/=]+( .*)?")


def trusted_keys(paths: HostPaths) -> list[str]:
    """Every key of every file. Raises ReleaseUntrustedError for a file that is none: it may be the one that counts."""
    return [key for file in sorted(paths.trusted_keys.glob("*.pub")) for key in keys_in(file)]


def keys_in(file: Path) -> list[str]:
    """Raises ReleaseUntrustedError."""
    try:
        lines = file.read_bytes()[:KEY_FILE_BYTES_MAX].decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise ReleaseUntrustedError(f"{file}: {error.strerror} — run as root") from None
    keys = []
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if not _KEY.fullmatch(line.strip()):
            raise ReleaseUntrustedError(f"{file} holds no public key of ssh-keygen — mend or remove it")
        keys.append(" ".join(line.split()[:2]))
    return keys


def trust(paths: HostPaths, file: Path) -> None:
    """From now on its keys count here. Raises UpgradeError, or HostSpaceError."""
    kept = paths.trusted_keys / f"{file.name.removesuffix('.pub')}.pub"
    try:
        if kept.exists() and kept.samefile(file):
            return
        kept.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        kept.parent.chmod(0o755)
        write_durably(kept, file.read_bytes(), 0o644)
    except OSError as error:
        raise write_failure(kept, error) from None


def verify_signature(file: Path, signature: Path, keys: Sequence[str], namespace: str = BUNDLE_NAMESPACE) -> None:
    """Return when one of the keys signed exactly these bytes. Raises ReleaseUntrustedError that names the file."""
    try:
        content, signed = file.read_bytes(), signature.read_bytes()[:SIGNATURE_BYTES_MAX]
    except OSError as error:
        raise ReleaseUntrustedError(
            f"{error.filename}: {error.strerror} — this machine trusts only what is signed (/etc/edgellm/trusted-keys)"
        ) from None
    with tempfile.TemporaryDirectory(prefix="edgellm-trust-") as folder:
        allowed, copy = Path(folder) / "allowed", Path(folder) / "signature"
        allowed.write_text("".join(f'{SIGNER} namespaces="{namespace}" {key}\n' for key in keys))
        copy.write_bytes(signed)
        said = attempt(
            ["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", SIGNER, "-n", namespace, "-s", copy], stdin=content
        )
    if said.code != 0:
        raise ReleaseUntrustedError(
            f"{file}: {signature.name} is not by a key that this machine trusts, or the file was changed "
            f"({said.last_words}) — get it anew, or put its maker's key into /etc/edgellm/trusted-keys"
        )


def sign(file: Path, key: Path, namespace: str = BUNDLE_NAMESPACE) -> Path:
    """Write FILE.sig with a private key of ssh-keygen. Raises ReleaseUntrustedError."""
    signature = file.with_name(file.name + SIGNATURE_SUFFIX)
    signature.unlink(missing_ok=True)
    said = attempt(["ssh-keygen", "-Y", "sign", "-f", key, "-n", namespace, file])
    if said.code != 0 and "passphrase" in said.errors:
        raise ReleaseUntrustedError(f"{key} has a passphrase — load it into ssh-agent: ssh-add {key}")
    if said.code != 0 or not signature.is_file():
        raise ReleaseUntrustedError(f"{file} cannot be signed with {key}: {said.last_words}")
    return signature
