"""Who vouches for an archive: ed25519 keys, signatures over ``archive.json``, and the file of keys that are trusted.

A private key is a PEM file (PKCS 8, unencrypted) that nobody else may read. Trusted keys are lines
``NAME:ed25519:BASE64``; empty lines and lines that begin with # do not count.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from edgellm.config.regular_file import open_regular
from edgellm.errors import BundleDamagedError, ConfigError, EngineUntrustedError

ALGORITHM = "ed25519"
PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64
MAX_SIGNATURE_FILE_BYTES = 4096
MAX_KEY_FILE_BYTES = 1 << 20
PRIVATE_FILE_MODE = 0o600
# So that a signature over anything else can never be taken for one over an archive.
_CONTEXT = b"edgellm engine archive\n"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True, slots=True)
class TrustedKey:
    name: str
    public_key: bytes

    def line(self) -> str:
        return f"{self.name}:{ALGORITHM}:{base64.b64encode(self.public_key).decode()}"


def make_key(path: Path, name: str) -> TrustedKey:
    """Write a new private key to ``path``, which must not exist; give the line that others trust it by."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be a key's name: letters, digits and ._@- are taken")
    private = Ed25519PrivateKey.generate()
    content = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE_MODE)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        raise ConfigError(f"{path}: exists already: a key is never overwritten") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: the key cannot be written there") from None
    return TrustedKey(name, private.public_key().public_bytes_raw())


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Raises ConfigError for what is no key of this kind, or may be read by others."""
    try:
        with open_regular(path) as stream:
            if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & (stat.S_IRWXO | stat.S_IWGRP):
                raise ConfigError(f"{path}: others may read or change this key — chmod 600 {path}")
            content = stream.read(MAX_KEY_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror} — give a key that edgellm engine keygen made") from None
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{path}: no unencrypted PEM key — give one that edgellm engine keygen made") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path}: not an ed25519 key — give one that edgellm engine keygen made")
    return key


def read_trusted_keys(path: Path) -> tuple[TrustedKey, ...]:
    """Raises ConfigError naming file and line; a file without any key is one that trusts nobody."""
    try:
        with open_regular(path) as stream:
            text = stream.read(MAX_KEY_FILE_BYTES).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: it must hold the keys that archives may be signed with") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not text: it must hold lines NAME:{ALGORITHM}:BASE64") from None
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, _, rest = line.strip().partition(":")
            algorithm, _, encoded = rest.partition(":")
            public_key = _decoded(encoded, PUBLIC_KEY_BYTES)
            if not _NAME.fullmatch(name) or algorithm != ALGORITHM or public_key is None:
                raise ConfigError(
                    f"{path}:{number}: not NAME:{ALGORITHM}:BASE64 with a key of {PUBLIC_KEY_BYTES} bytes"
                )
            keys.append(TrustedKey(name, public_key))
    return tuple(keys)


def sign(contents: bytes, key: Ed25519PrivateKey) -> bytes:
    """``signature.json`` for ``archive.json``; the same key and contents give the same bytes."""
    values = {
        "algorithm": ALGORITHM,
        "public_key": base64.b64encode(key.public_key().public_bytes_raw()).decode(),
        "signature": base64.b64encode(key.sign(_CONTEXT + contents)).decode(),
    }
    return (json.dumps(values, indent=1) + "\n").encode()


def verify(signature: bytes | None, contents: bytes, trusted: Sequence[TrustedKey], path: Path) -> TrustedKey:
    """The trusted key that signed ``contents``. Raises EngineUntrustedError, or BundleDamagedError for no signature."""
    if signature is None:
        raise EngineUntrustedError(
            f"{path}: not signed, and this machine takes signed archives only — export it with --sign, or unset "
            "engines.trusted_keys_file"
        )
    public_key, value = _parsed(signature, path)
    known = next((key for key in trusted if key.public_key == public_key), None)
    if known is None:
        shown = base64.b64encode(public_key).decode()
        raise EngineUntrustedError(
            f"{path}: signed with the key {shown}, which engines.trusted_keys_file does not hold — add it "
            "there if you trust whoever holds it"
        )
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(value, _CONTEXT + contents)
    except InvalidSignature:
        raise EngineUntrustedError(
            f"{path}: its signature is not one of {known.name} over what it holds: it was changed after it was signed"
        ) from None
    return known


def _parsed(content: bytes, path: Path) -> tuple[bytes, bytes]:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, dict) and values.get("algorithm") == ALGORITHM:
        public_key = _decoded(values.get("public_key"), PUBLIC_KEY_BYTES)
        signature = _decoded(values.get("signature"), SIGNATURE_BYTES)
        if public_key is not None and signature is not None:
            return public_key, signature
    raise BundleDamagedError(f"{path}: its signature.json is no {ALGORITHM} signature")


def _decoded(text: object, size_bytes: int) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return value if len(value) == size_bytes else None
