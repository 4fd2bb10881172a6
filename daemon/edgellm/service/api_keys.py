"""The file of API keys: one client a line, as ``name:key`` or ``name:sha256:HEX``; # starts a comment.

`` priority=high`` or ``low`` may follow: the class that its requests wait in.

Only the hash of a key stays in memory, and only hashes are written. ``name`` is the client in counters, fairness and
cache domains. A change replaces the file whole, so that a daemon that watches it never sees a half.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgellm.api.keys import ApiKey
from edgellm.config.regular_file import open_regular
from edgellm.durable_file import PRIVATE_FILE_MODE, write_durably
from edgellm.errors import ConfigError
from edgellm.service.credentials import UNIT_FOLDER
from edgellm.serving.priority import Priority

FILE_BYTES_MAX = 2**20
KEY_CHARACTERS_MIN = 16
KEYS_MAX = 1_024
MADE_KEY_BYTES = 32
MADE_KEY_PREFIX = "edgellm-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PRIORITY_OPTION = "priority="
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")
_KEY = re.compile(r"[!-~]+")


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """The keys in the file, which has at least one. Raises ConfigError that names the line, never the key."""
    keys = read_keys_left(path)
    if not keys:
        # Of a unit's copy the command knows the original.
        where = "" if path.is_relative_to(UNIT_FOLDER) else f" --api-keys-file {path}"
        raise ConfigError(f"{path} holds no key — make one with: edgellm keys add NAME{where}")
    return keys


def read_keys_left(path: Path) -> tuple[ApiKey, ...]:
    """The keys in the file, which may all have been revoked. Raises ConfigError."""
    keys: dict[str, ApiKey] = {}
    for number, raw in enumerate(_read_text(path).splitlines(), start=1):
        key = _read_line(raw, f"{path} line {number}")
        if key is not None:
            if key.name in keys:
                raise ConfigError(
                    f"{path} line {number}: the client {key.name} is there twice — give each its own name"
                )
            keys[key.name] = key
    if len(keys) > KEYS_MAX:
        raise ConfigError(f"{path} holds more than {KEYS_MAX} keys — edgellm keys revoke takes one out")
    return tuple(keys.values())


def add_key(path: Path, name: str, priority: Priority = Priority.NORMAL) -> str:
    """Make a key for a new client; the file, made where it is missing, gets its hash. Returns the key, kept nowhere."""
    key = make_key()
    add_hashed_key(path, name, hashlib.sha256(key.encode()).digest(), priority)
    return key


def make_key() -> str:
    return MADE_KEY_PREFIX + secrets.token_urlsafe(MADE_KEY_BYTES)


def add_hashed_key(path: Path, name: str, sha256: bytes, priority: Priority = Priority.NORMAL) -> None:
    """As ``add_key``, for a key that somebody else has. Raises ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a client's name — use up to 64 letters, digits, dots, dashes, underscores"
        )
    with _changing(path) as target:
        text = _read_text(target) if target.exists() else ""
        known = read_keys_left(target) if target.exists() else ()
        if any(one.name == name for one in known):
            raise ConfigError(f"{path}: the client {name} has a key — revoke it first, or choose another name")
        if len(known) >= KEYS_MAX:
            raise ConfigError(
                f"{path} holds {KEYS_MAX} keys, and may hold no more — revoke one first: edgellm keys revoke NAME"
            )
        separator = "" if not text or text.endswith("\n") else "\n"
        suffix = "" if priority is Priority.NORMAL else f" {_PRIORITY_OPTION}{priority.value}"
        line = f"{name}:sha256:{sha256.hex()}{suffix}\n"
        _replace(target, text + separator + line)


def revoke_key(path: Path, name: str) -> int:
    """Take a client's key out of the file; how many are left. Raises ConfigError when there is no such client."""
    with _changing(path) as target:
        known = read_keys_left(target)
        if all(one.name != name for one in known):
            names = ", ".join(one.name for one in known) or "none"
            raise ConfigError(f"{path} holds no client {name!r} — it has: {names}")
        lines = _read_text(target).splitlines(keepends=True)
        _replace(target, "".join(line for line in lines if line.strip().partition(":")[0] != name))
    return len(known) - 1


def _read_text(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & stat.S_IRWXO:
                raise ConfigError(f"server.api_keys_file {path} is open to every user — run: chmod 600 {path}")
            data = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"server.api_keys_file {path}: {error.strerror} — check the path and its owner") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"server.api_keys_file {path} is larger than {FILE_BYTES_MAX} bytes — is it the right file?")
    return data.decode("utf-8", errors="surrogateescape")


def _read_line(raw: str, place: str) -> ApiKey | None:
    line = raw.strip()
    if not line or line.startswith("#"):
        return None
    name, colon, secret = line.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise ConfigError(f"{place}: expected name:key — a name has letters, digits, dot, dash and underscore")
    secret, priority = _take_priority(secret, place)
    hashed = _HASH.fullmatch(secret)
    if hashed:
        return ApiKey(name, bytes.fromhex(hashed[1]), priority)
    if secret.startswith("sha256:"):
        raise ConfigError(f"{place}: sha256: must be followed by 64 hexadecimal digits — edgellm keys add makes one")
    if not _KEY.fullmatch(secret) or len(secret) < KEY_CHARACTERS_MIN:
        raise ConfigError(
            f"{place}: a key needs at least {KEY_CHARACTERS_MIN} visible characters — edgellm keys add makes one"
        )
    return ApiKey.of(name, secret, priority)


def _take_priority(secret: str, place: str) -> tuple[str, Priority]:
    key, _, option = secret.partition(" ")
    option = option.strip()
    if not option.startswith(_PRIORITY_OPTION):
        return secret, Priority.NORMAL
    try:
        return key, Priority(option.removeprefix(_PRIORITY_OPTION))
    except ValueError:
        raise ConfigError(
            f"{place}: priority= must be followed by high, normal or low — edgellm keys add --priority writes it"
        ) from None


@contextmanager
def _changing(path: Path) -> Iterator[Path]:
    """The file behind ``path``, with everybody else who would change it kept waiting."""
    target = Path(os.path.realpath(path))
    try:
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{target.parent}: {error.strerror} — make the folder of the key file first") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield target
    except OSError as error:
        raise ConfigError(f"{path} cannot be changed: {error.strerror}") from None
    finally:
        os.close(folder)


def _replace(target: Path, text: str) -> None:
    mode = stat.S_IMODE(target.stat().st_mode) & ~stat.S_IRWXO if target.exists() else PRIVATE_FILE_MODE
    write_durably(target, text.encode("utf-8", errors="surrogateescape"), mode)
