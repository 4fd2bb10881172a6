"""Error frames: an unexpected exception as a log line that cannot hold prompt text."""

from __future__ import annotations

import traceback

from edgellm.errors import EdgeLLMError, GenerationError


def error_frames(error: BaseException) -> str:
    """The type and the code positions, innermost last, without the message."""
    frames = traceback.extract_tb(error.__traceback__)
    places = " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
    return f"{type(error).__name__} at {places}" if places else type(error).__name__


def failure_cause(error: BaseException) -> str:
    """Why a request failed, for the log: texts of our own errors and reasons, of others the code positions alone."""
    if isinstance(error, GenerationError) and error.reason:
        return f"{error.code}: {error.reason}"
    if isinstance(error, EdgeLLMError):
        return f"{error.code}: {error}"
    return error_frames(error)
