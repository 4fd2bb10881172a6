"""LLM.serve(): what it refuses before it takes a socket."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from edgellm.errors import ConfigError, PortUnavailableError
from edgellm.service.model_server import serve_model


def serve(**changes: Any) -> None:
    arguments: dict[str, Any] = {
        "host": None,
        "port": 0,
        "served_model_name": "tiny",
        "api_key": "",
        "max_queued_requests": 16,
        "queue_timeout_seconds": 600.0,
    }
    serve_model(None, **{**arguments, **changes})  # type: ignore[arg-type]  # never reached


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "board.example"])
def test_without_a_key_only_this_machine_is_served(host: str) -> None:
    with pytest.raises(ConfigError, match="api_key"):
        serve(host=host)


def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortUnavailableError, match=str(port)):
            serve(port=port)


def test_limits_are_checked_first() -> None:
    with pytest.raises(ConfigError, match="max_queued_requests: input should be greater than or equal to 0"):
        serve(max_queued_requests=-1)
    with pytest.raises(ConfigError, match="queue_timeout_seconds"):
        serve(queue_timeout_seconds=0)
    with pytest.raises(ConfigError, match="port"):
        serve(port=70_000)
    with pytest.raises(ConfigError):
        serve(served_model_name="")
