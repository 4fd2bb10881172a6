"""Error frames: an unexpected exception as a log line that cannot hold prompt text."""

from __future__ import annotations

import traceback


def error_frames(error: BaseException) -> str:
    """The type and the code positions, innermost last, without the message."""
    frames = traceback.extract_tb(error.__traceback__)
    places = " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
    return f"{type(error).__name__} at {places}" if places else type(error).__name__
