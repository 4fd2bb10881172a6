"""Whether a configuration is right before it goes onto an image or into a bundle, by `edgellm config check`.

What validates settings is no part of Python's standard library: it runs in an environment that has it.
"""

from __future__ import annotations

from pathlib import Path

from edgellm.errors import ConfigError
from edgellm.host.commands import attempt
from edgellm.host.packed_inputs import require_file
from edgellm.host.setup_environment import CHECKOUT, environment, python_with

CHECK_DEADLINE_SECONDS = 60.0


def check_configuration(file: Path, option: str = "--config", *, pairable: bool = False) -> None:
    """Raises ConfigError with file, key and line. What it names need not be on this machine. With ``pairable`` it is
    refused where no client could pair with its server and it does not say that this is meant."""
    require_file(option, file)
    python = python_with("pydantic")
    if python is None:
        raise ConfigError(
            f"{option} is checked before it is taken, and pydantic, which does it, is not here — run make setup in "
            f"{CHECKOUT}, or pip install pydantic"
        )
    argv = [python, "-P", "-m", "edgellm", "config", "check", "--elsewhere", "--config", str(file)]
    argv += ["--pairable"] if pairable else []
    said = attempt(argv, deadline_seconds=CHECK_DEADLINE_SECONDS, environment=environment())
    if said.code != 0:
        raise ConfigError(f"{option}: {said.last_words.removeprefix('edgellm: ')}")
