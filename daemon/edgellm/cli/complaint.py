"""What went wrong, for people: one line on standard error, which the journal takes for an error."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def complain(message: str) -> None:
    from edgellm.service.logs import ERROR_PREFIX, goes_to_journal

    line = " ".join(message.split())
    try:
        sys.stderr.write(f"{ERROR_PREFIX if goes_to_journal() else ''}edgellm: {line}\n")
        sys.stderr.flush()
    except OSError:  # nobody can be told; the exit code still says it
        say_no_more(sys.stderr)


def say_no_more(stream: TextIO) -> None:
    """Nothing more can be said on it, not even what is buffered for the interpreter's exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
