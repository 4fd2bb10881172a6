"""Files that are read anew while the daemon runs: whenever they change, and at once on SIGHUP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgellm.errors import EdgeLLMError

POLL_SECONDS = 1.0

_log = logging.getLogger(__name__)

Signature = tuple[tuple[int, int, int, int] | None, ...]


@dataclass(slots=True)
class ReloadedFiles:
    """Files that belong together. ``reload`` raises an EdgeLLMError for what is wrong, and nothing changes then;
    ``check`` raises it too, and never changes anything.
    """

    what: str
    paths: Sequence[Path]
    reload: Callable[[], None]
    check: Callable[[], object]
    _seen: Signature = field(init=False)

    def __post_init__(self) -> None:
        self._seen = self._signature()

    def reload_if_changed(self) -> None:
        signature = self._signature()
        if signature != self._seen:
            self._seen = signature
            self.reload_now()

    def reload_now(self) -> str:
        """Returns what came of it, which is logged too."""
        try:
            self.reload()
        except EdgeLLMError as error:
            said = f"{self.what} were not read anew, and those of before hold on: {error}"
            _log.error("%s", said)
        else:
            said = f"{self.what} were read anew"
            _log.info("%s", said)
        return said

    def _signature(self) -> Signature:
        return tuple(_signature(path) for path in self.paths)


class Reloader:
    """Looks at its files every second until it is cancelled: a file system that tells of changes is not needed."""

    def __init__(self, files: Sequence[ReloadedFiles]) -> None:
        self._files = files

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for files in self._files:
                files.reload_if_changed()

    def reload_now(self) -> list[str]:
        return [files.reload_now() for files in self._files]


def _signature(path: Path) -> tuple[int, int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
