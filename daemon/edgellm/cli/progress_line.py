"""Shows the progress of a long step on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgellm.engines.progress import Progress


class ProgressLine:
    """One line on standard error that is redrawn on a terminal and written once a stage elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._stage = ""

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal and self._stage:
            sys.stderr.write("\n")

    def show(self, progress: Progress) -> None:
        text = str(progress)
        if self._terminal:
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()
        elif progress.stage != self._stage:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        self._stage = progress.stage
