"""TargetCommands: programs of the system that is installed onto, or taken off, in that system's own root."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from edgellm.errors import ConfigError, UpgradeError
from edgellm.host.commands import COMMAND_DEADLINE_SECONDS, Said, attempt
from edgellm.host.installed_files import Change
from edgellm.host.option_types import named_path
from edgellm.host.target import Target

CONTAINER_MARKS = ("/run/.containerenv", "/.dockerenv")  # of podman and of docker


class TargetCommands:
    """One that fails keeps no other from being run: ``problems`` has what it said, for the end.

    ``note`` is told what is left to the operator. With ``dry_run`` only questions are asked.
    """

    def __init__(self, target: Target, *, dry_run: bool, note: Callable[[str], None]) -> None:
        self._target = target
        self._dry_run = dry_run
        self._note = note
        self.problems: list[str] = []
        # Below a container's /host systemctl is in its own root after all: that of the running system.
        ignoring = {"SYSTEMD_IGNORE_CHROOT": "1"} if target.is_running_systemd else {}
        self._environment = {**os.environ, **ignoring}

    def has(self, program: str) -> bool:
        return self._target.has_program(program) if self._target.is_entered else shutil.which(program) is not None

    def ask(self, *words: str) -> Said | None:
        """A question: it changes nothing. None where there is no answer."""
        if not self.has(words[0]):
            return None
        try:
            return attempt(self._in_its_root(words), environment=self._environment)
        except UpgradeError:
            return None

    def run(self, *words: str, deadline_seconds: float = COMMAND_DEADLINE_SECONDS) -> bool:
        """Whether it did what it is for."""
        return self._run(words, words, deadline_seconds)

    def run_for_root(self, *words: str) -> bool:
        """A program of systemd's that is told which root is meant."""
        target = self._target
        where = [] if target.is_this_system or target.is_entered else [f"--root={target.root}"]
        shown = where if not target.is_host else []
        return self._run((words[0], *where, *words[1:]), (words[0], *shown, *words[1:]), COMMAND_DEADLINE_SECONDS)

    def require_none_failed(self) -> None:
        """Raises ConfigError with all that went wrong."""
        if self.problems:
            raise ConfigError("; ".join(self.problems))

    def _run(self, words: tuple[str, ...], shown: tuple[str, ...], deadline_seconds: float) -> bool:
        text = " ".join(shown)
        if self._dry_run:
            print(f"would run {text}")
            return False
        if not self.has(words[0]):
            self._note(f"{words[0]} is not on this machine — run there: {text}")
            return False
        try:
            said = attempt(self._in_its_root(words), deadline_seconds=deadline_seconds, environment=self._environment)
        except UpgradeError as error:
            self.problems.append(str(error))
            return False
        if said.code != 0:
            self.problems.append(f"{text} ended with {said.code}: {said.last_words}")
        return said.code == 0

    def _in_its_root(self, words: tuple[str, ...]) -> list[str]:
        return ["chroot", str(self._target.root), *words] if self._target.is_entered else list(words)


def add_target_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", metavar="DIR", type=named_path, default=Path("/"), help="the system to change (default: this one)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")


def target_of(namespace: argparse.Namespace) -> Target:
    """Raises ConfigError."""
    root: Path = namespace.root
    if not root.is_dir():
        raise ConfigError(f"--root {root} is no folder")
    target = Target(root.resolve())
    if target.is_this_system and not target.is_running_systemd and any(map(os.path.exists, CONTAINER_MARKS)):
        raise ConfigError(
            "this is a container, and what is changed here is gone with it — run it on the host, or give its root "
            "with --volume=/:/host and --root=/host, as systemd/README.md has it"
        )
    return target


def show_changes(changes: Iterable[Change], *, dry_run: bool) -> None:
    for change in changes:
        print(f"would be {change}" if dry_run else change)


def note(text: str) -> None:
    sys.stderr.write(f"edgellm: {text}\n")
