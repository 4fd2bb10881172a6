"""Error frames: an unexpected exception as a log line that cannot hold prompt text."""

from __future__ import annotations

import traceback
from typing import TypeVar

from edgellm.errors import EdgeLLMError, GenerationError

Error = TypeVar("Error", bound=BaseException)


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


def without_frames(error: Error) -> Error:
    """The error for whoever hears of it later. One that its own frame keeps would keep what was alive in all of its
    frames, such as decoded images, until the garbage collector comes by.
    """
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__
    return error
