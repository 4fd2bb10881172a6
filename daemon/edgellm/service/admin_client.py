"""Asks the running daemon something over its admin socket."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgellm import errors
from edgellm.errors import AdminAccessError, DaemonUnreachableError, EdgeLLMError
from edgellm.host.start_command import start_command
from edgellm.service.admin_messages import LINE_BYTES_MAX, Answer, Done, Refused, Request

# What a daemon may refuse with.
_FAMILIES = (errors.ConfigError, errors.ModelError, errors.EngineError)
_OTHERS: Sequence[type[EdgeLLMError]] = (
    *(errors.AdminAccessError, errors.LoadUnfinishedError, errors.RuntimeUnavailableError),
    *(errors.CacheError, errors.WorkerFailedError, errors.PairingClosedError),
)
ANSWER_DEADLINE_SECONDS = 300.0  # sources of models are looked into before it answers


def ask_daemon(path: Path, request: Request, *, deadline_seconds: float = ANSWER_DEADLINE_SECONDS) -> Done:
    """The answer. Raises the daemon's error, or one that says why it cannot be reached."""
    received = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(deadline_seconds)
            connection.connect(str(path))
            connection.sendall(msgspec.json.encode(request) + b"\n")
            while not received.endswith(b"\n") and (piece := connection.recv(LINE_BYTES_MAX)):
                received += piece
    except PermissionError:
        raise AdminAccessError(f"{path}: only root and the daemon's own user may do this — use sudo") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise DaemonUnreachableError(
            f"no daemon answers at {path} ({reason}) — start it with: {start_command()}, or give its admin_socket"
        ) from None
    try:
        answer = msgspec.json.decode(received, type=Answer)
    except msgspec.MsgspecError:
        raise DaemonUnreachableError(f"the daemon at {path} ended before it answered — see its log") from None
    if isinstance(answer, Refused):
        raise error_of(answer)
    if not isinstance(answer, Done):
        raise DaemonUnreachableError(f"the daemon at {path} answered something else — see its log")
    return answer


def error_of(refused: Refused) -> EdgeLLMError:
    """Of the class that the daemon raised, which decides the exit code."""
    for kind in (*_OTHERS, *(kind for family in _FAMILIES for kind in _subclasses(family))):
        if kind.code == refused.code:
            return kind(refused.message)
    return DaemonUnreachableError(refused.message)


def _subclasses(kind: type[EdgeLLMError]) -> Sequence[type[EdgeLLMError]]:
    return [kind, *(lower for child in kind.__subclasses__() for lower in _subclasses(child))]
