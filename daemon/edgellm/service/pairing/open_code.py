"""OpenCode: the code that is open now, on disk, so that a restart neither revives a used one nor loses a valid one."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from edgellm.durable_file import write_durably
from edgellm.errors import ConfigError

FILE_NAME: Final = "open-code.json"
FILE_BYTES_MAX: Final = 4_096
# What each boot costs a code at least: the clock of a board without a battery may start anew in the past each time.
BOOT_COST_SECONDS: Final = 60.0
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _Record(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    verifier_key: bytes
    boot_id: str
    ends_boottime_seconds: float
    ends_unix_seconds: float
    left_seconds: float  # when it was written
    refused_proofs: int
    key_sha256: bytes | None
    client: str | None


@dataclass(frozen=True, slots=True)
class OpenCode:
    """``key_sha256`` and ``client`` are those of the client that used it; None before."""

    verifier_key: bytes
    ends_boottime_seconds: float
    refused_proofs: int = 0
    key_sha256: bytes | None = None
    client: str | None = None

    @property
    def left_seconds(self) -> float:
        return self.ends_boottime_seconds - boottime_seconds()

    @property
    def is_used(self) -> bool:
        return self.key_sha256 is not None

    def used_by(self, client: str, key_sha256: bytes) -> OpenCode:
        return replace(self, client=client, key_sha256=key_sha256)

    def refused_once_more(self) -> OpenCode:
        return replace(self, refused_proofs=self.refused_proofs + 1)


def boottime_seconds() -> float:
    """Runs on while the machine sleeps, and is not set by anybody."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_open_code(folder: Path) -> OpenCode | None:
    """None where none is open, or its time is over. Raises ConfigError for a file that is not ours."""
    path = folder / FILE_NAME
    try:
        with path.open("rb") as stream:
            record = msgspec.json.decode(stream.read(FILE_BYTES_MAX), type=_Record)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror} — check the folder and its owner") from None
    except msgspec.MsgspecError:
        raise ConfigError(f"{path} is damaged — remove it; edgellm pair-code opens a new code") from None
    if record.boot_id == _boot_id():
        ends_seconds = record.ends_boottime_seconds
    else:
        by_clock_seconds = record.ends_unix_seconds - time.time()
        left_seconds = min(by_clock_seconds, record.left_seconds - BOOT_COST_SECONDS)
        ends_seconds = boottime_seconds() + left_seconds
    code = OpenCode(record.verifier_key, ends_seconds, record.refused_proofs, record.key_sha256, record.client)
    if code.left_seconds <= 0:
        remove_open_code(folder)
        return None
    if record.boot_id != _boot_id():
        write_open_code(folder, code)  # so that the next boot costs it too
    return code


def write_open_code(folder: Path, code: OpenCode) -> None:
    """Durably. Raises ConfigError; what was there is as before then."""
    left_seconds = code.left_seconds
    record = _Record(
        code.verifier_key,
        _boot_id(),
        code.ends_boottime_seconds,
        time.time() + left_seconds,
        left_seconds,
        code.refused_proofs,
        code.key_sha256,
        code.client,
    )
    path = folder / FILE_NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(path, msgspec.json.encode(record))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror} — pairing needs a folder that the daemon can write") from None


def remove_open_code(folder: Path) -> None:
    try:
        (folder / FILE_NAME).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder / FILE_NAME}: {error.strerror} — check the folder and its owner") from None


def _boot_id() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip()
