"""Questions to the running server over its admin socket: a line of JSON, and one back."""

from __future__ import annotations

import json
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgellm.errors import UpgradeError
from edgellm.host.paths import HostPaths

ANSWER_DEADLINE_SECONDS = 120.0
LINE_BYTES_MAX = 65_536


def ask_server(paths: HostPaths, question: Mapping[str, Any]) -> dict[str, Any]:
    """Its answer, which may be a refusal. Raises OSError where none answers, UpgradeError for what is no answer."""
    path = admin_socket(paths)
    received = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_DEADLINE_SECONDS)
        connection.connect(str(path))
        connection.sendall(json.dumps(question).encode() + b"\n")
        while not received.endswith(b"\n") and len(received) < LINE_BYTES_MAX:
            piece = connection.recv(LINE_BYTES_MAX)
            if not piece:
                raise ConnectionError("it ended before it answered")
            received += piece
    try:
        answer = json.loads(received)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "answer" not in answer:
        raise UpgradeError(f"the server's admin socket {path} answered something that is no answer")
    return answer


def admin_socket(paths: HostPaths) -> Path:
    """The configuration may name another. What is wrong with the configuration is the server's to say."""
    try:
        named = tomllib.loads(paths.configuration.read_text(encoding="utf-8")).get("admin_socket")
    except (OSError, ValueError):
        named = None
    return paths.at(named) if isinstance(named, str) else paths.admin_socket
