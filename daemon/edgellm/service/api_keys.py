"""Reads the file of API keys: one client a line, as ``name:key`` or ``name:sha256:HEX``; # starts a comment.

Only the hash of a key stays in memory. ``name`` is the client in counters, fairness and cache domains.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from edgellm.api.keys import ApiKey
from edgellm.errors import ConfigError

FILE_BYTES_MAX = 2**20
KEY_CHARACTERS_MIN = 16
KEYS_MAX = 1_024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")
_KEY = re.compile(r"[!-~]+")


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """The keys in the file. Raises ConfigError that names the line, never the key."""
    try:
        with path.open("rb") as stream:
            if stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXO:
                raise ConfigError(f"server.api_keys_file {path} is open to every user — run: chmod 600 {path}")
            data = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"server.api_keys_file {path}: {error.strerror} — check the path and its owner") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"server.api_keys_file {path} is larger than {FILE_BYTES_MAX} bytes — is it the right file?")
    keys: dict[str, ApiKey] = {}
    for number, raw in enumerate(data.decode("utf-8", errors="replace").splitlines(), start=1):
        line = raw.strip()
        if line and not line.startswith("#"):
            key = _read_line(line, f"{path} line {number}")
            if key.name in keys:
                raise ConfigError(
                    f"{path} line {number}: the client {key.name} is there twice — give each its own name"
                )
            keys[key.name] = key
    if not keys:
        raise ConfigError(f"{path} holds no key — add a line name:key, for example made by: openssl rand -hex 24")
    if len(keys) > KEYS_MAX:
        raise ConfigError(f"{path} holds more than {KEYS_MAX} keys")
    return tuple(keys.values())


def _read_line(line: str, place: str) -> ApiKey:
    name, colon, secret = line.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise ConfigError(f"{place}: expected name:key — a name has letters, digits, dot, dash and underscore")
    hashed = _HASH.fullmatch(secret)
    if hashed:
        return ApiKey(name, bytes.fromhex(hashed[1]))
    if secret.startswith("sha256:"):
        raise ConfigError(f"{place}: sha256: must be followed by 64 hexadecimal digits")
    if not _KEY.fullmatch(secret) or len(secret) < KEY_CHARACTERS_MIN:
        raise ConfigError(
            f"{place}: a key needs at least {KEY_CHARACTERS_MIN} visible characters — openssl rand -hex 24 makes one"
        )
    return ApiKey.of(name, secret)
