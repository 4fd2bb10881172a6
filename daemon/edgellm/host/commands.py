"""Runs programs of the host and keeps what they said for whoever has to find out why."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgellm.errors import UpgradeError

SAID_CHARACTERS_MAX = 600
COMMAND_DEADLINE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """The end of what it said, in one line."""
        return " ".join((self.errors or self.output).split())[-SAID_CHARACTERS_MAX:]


def attempt(
    argv: Sequence[str | Path],
    *,
    stdin: bytes | None = None,
    deadline_seconds: float = COMMAND_DEADLINE_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> Said:
    """Raises UpgradeError for a program that is not there or does not end in time; the exit code is the caller's."""
    words = [str(word) for word in argv]
    try:
        completed = subprocess.run(  # noqa: S603  # our own words
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=deadline_seconds,
            check=False,
            env=environment,
            start_new_session=True,  # an interruption of ours is not one of theirs
        )
    except FileNotFoundError:
        raise UpgradeError(f"{words[0]} is not on this machine — install the package that has it") from None
    except OSError as error:
        raise UpgradeError(f"{words[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UpgradeError(f"{' '.join(words[:4])} … did not end within {deadline_seconds:g} s") from None
    return Said(completed.returncode, _text(completed.stdout), _text(completed.stderr))


def run(
    argv: Sequence[str | Path], *, stdin: bytes | None = None, deadline_seconds: float = COMMAND_DEADLINE_SECONDS
) -> Said:
    """Raises UpgradeError with what the program said, also when it ends with anything but 0."""
    said = attempt(argv, stdin=stdin, deadline_seconds=deadline_seconds)
    if said.code != 0:
        words = " ".join(str(word) for word in argv)
        raise UpgradeError(f"{words} ended with {said.code}: {said.last_words}")
    return said


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
