"""Shows the progress of a long step on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgellm.engines.progress import Progress


class ProgressLine:
    """One line on standard error that is redrawn on a terminal; elsewhere the first and the last of each stage."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._stage = ""
        self._latest = ""
        self._written = ""  # the line that was written last

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._terminal:
            self._write_line(self._latest)
        elif self._stage:
            sys.stderr.write("\n")

    def show(self, progress: Progress) -> None:
        text = str(progress)
        if self._terminal:
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()
        elif progress.stage != self._stage:
            self._write_line(self._latest)
            self._write_line(text)
        self._stage = progress.stage
        self._latest = text

    def _write_line(self, text: str) -> None:
        if text and text != self._written:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
            self._written = text
