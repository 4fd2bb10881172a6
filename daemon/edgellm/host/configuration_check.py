"""Whether a configuration is right before it goes onto an image or into a bundle, by `edgellm config check`.

What validates settings is no part of Python's standard library: it runs in an environment that has it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from edgellm.errors import ConfigError
from edgellm.host.commands import attempt

DAEMON = Path(__file__).resolve().parents[2]
ENVIRONMENT = DAEMON.parent / ".venv/bin/python"  # of make
CHECK_DEADLINE_SECONDS = 60.0


def check_configuration(file: Path, option: str = "--config") -> None:
    """Raises ConfigError with file, key and line. What it names need not be on this machine."""
    if not file.is_file():
        raise ConfigError(f"{option} {file} is not there, or is no file")
    argv = [_python(option), "-P", "-m", "edgellm", "config", "check", "--elsewhere", "--config", str(file)]
    said = attempt(argv, deadline_seconds=CHECK_DEADLINE_SECONDS, environment=_environment())
    if said.code != 0:
        raise ConfigError(f"{option}: {said.last_words.removeprefix('edgellm: ')}")


def _python(option: str) -> str:
    for one in _candidates():
        found = attempt([one, "-c", "import pydantic"], environment=_environment())
        if found.code == 0:
            return one
    raise ConfigError(
        f"{option} is checked before it is taken, and pydantic, which does it, is not here — run make setup in "
        f"{DAEMON.parent}, or pip install pydantic"
    )


def _candidates() -> Iterator[str]:
    yield sys.executable
    if ENVIRONMENT.is_file():
        yield str(ENVIRONMENT)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGELLM_")}
    return {**kept, "PYTHONPATH": str(DAEMON)}
