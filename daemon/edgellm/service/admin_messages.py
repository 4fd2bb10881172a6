"""What is said over the admin socket: one JSON object a line, a request and its answer, then the end."""

from __future__ import annotations

import msgspec

LINE_BYTES_MAX = 65_536


class Reload(msgspec.Struct, tag="reload", tag_field="verb", frozen=True, forbid_unknown_fields=True):
    """Take the configuration on anew."""


class Done(msgspec.Struct, tag="done", tag_field="answer", frozen=True):
    """``lines`` say what came of it, for people."""

    lines: list[str]


class Refused(msgspec.Struct, tag="refused", tag_field="answer", frozen=True):
    """``code`` is that of an error of our tree, and decides the command's exit code."""

    code: str
    message: str


# A verb more is a struct more in this union, and a handler.
Request = Reload
Answer = Done | Refused
