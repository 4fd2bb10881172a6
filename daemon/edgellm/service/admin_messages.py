"""What is said over the admin socket: one JSON object a line, a request and its answer, then the end."""

from __future__ import annotations

import msgspec

LINE_BYTES_MAX = 65_536


class Reload(
    msgspec.Struct, tag="reload", tag_field="verb", frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Take the configuration on anew.

    ``config`` is the file that the daemon is taken to have; another daemon refuses. ``wait_seconds`` is how long the
    answer may wait for the models that are loaded for it; None does not wait.
    """

    config: str | None = None
    wait_seconds: float | None = None


class HostPass(msgspec.Struct, tag="host_pass", tag_field="verb", frozen=True, forbid_unknown_fields=True):
    """Let the machine's administrator ask this daemon over HTTP for a while, as a client would."""


class Refused(msgspec.Struct, tag="refused", tag_field="answer", frozen=True):
    """``code`` is that of an error of our tree, and decides the command's exit code."""

    code: str
    message: str


class Done(msgspec.Struct, tag="done", tag_field="answer", frozen=True):
    """``lines`` say what came of it, for people. ``failures`` are what was waited for in vain.

    ``pid`` and ``config`` are the daemon's that answers; ``is_loading`` when models are being loaded still.
    """

    lines: list[str]
    pid: int = 0
    config: str | None = None
    failures: list[Refused] = []
    is_loading: bool = False


class HostPassIssued(msgspec.Struct, tag="host_pass_issued", tag_field="answer", frozen=True):
    """``key`` holds for ``lifetime_seconds``; ``certificate_sha256`` is of ``url``'s certificate, if any."""

    url: str
    key: str
    lifetime_seconds: float
    version: str
    certificate_sha256: str | None = None


# A verb more is a struct more in this union, and a handler.
Request = Reload | HostPass
Answer = Done | HostPassIssued | Refused
