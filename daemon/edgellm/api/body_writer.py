"""BodyWriter: writes pieces of a streamed body without a turn of the event loop.

An ASGI extension of our own server: ``await send(...)`` passes through every middleware and a coroutine for each piece,
and needs a task that is woken first. Pieces in the middle of a body concern none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.types import Scope

EXTENSION = "edgellm.body_writer"
WRITER = "writer"  # its one entry


@dataclass(frozen=True, slots=True)
class TextFrame:
    """Pieces that differ in their text alone: ``before``, what ``middle`` makes of the text, ``after``."""

    before: bytes
    middle: Callable[[str], str]
    after: bytes


class BodyWriter(Protocol):
    def can_write(self) -> bool:
        """False before ``http.response.start`` was sent, after the end, when the client has left, and when it has not
        read enough of what it has: ``await send(...)`` is right in all these cases.
        """
        ...

    def write(self, piece: bytes) -> None:
        """Write a piece that is not empty, where ``can_write()``."""
        ...

    def text_writer(self, frame: TextFrame) -> Callable[[str], bool]:
        """What writes the frame with a text where ``can_write()``; elsewhere it gives False and does nothing.

        Called while ``can_write()``, and used for no other body.
        """
        ...


def body_writer_of(scope: Scope) -> BodyWriter | None:
    """None on a server that has no such extension."""
    writer: BodyWriter | None = scope.get("extensions", {}).get(EXTENSION, {}).get(WRITER)
    return writer
