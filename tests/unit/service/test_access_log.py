"""A request is one line that names its route and its end, and holds nothing the client wrote."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from edgellm.service.access_log import AccessLog

CANARY = "canary-of-the-prompt"


def ask(method: str, path: str, status: int | None = 200) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["request_id"] = "req-7"
        if status is None:
            return
        if status == 0:
            raise ConnectionResetError
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def receive() -> Message:
        return {"type": "http.request", "body": CANARY.encode(), "more_body": False}

    async def send(_message: Message) -> None:
        """Goes nowhere."""

    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "client": ("192.0.2.1", 5)}
    asyncio.run(AccessLog(app)({**scope, "query_string": CANARY.encode()}, receive, send))  # type: ignore[arg-type]


def test_a_request_is_one_line_with_route_status_and_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ask("POST", "/v1//chat/completions")
    (record,) = caplog.records
    words = record.getMessage().split(" ")
    assert words[:4] == ["192.0.2.1", "POST", "/v1/chat/completions", "200"]
    assert words[-1] == "req-7"


@pytest.mark.parametrize("path", [f"/{CANARY}", f"/v1/models/{CANARY}"])
def test_what_the_client_wrote_is_not_logged(path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ask("GET", path, 404)
    assert CANARY not in caplog.text
    assert " 404 " in caplog.text


def test_a_method_that_is_none_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ask("GET\n00:00:00", "/", 405)
    assert "00:00:00" not in caplog.records[0].getMessage()


def test_probes_are_quiet_unless_they_fail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ask("GET", "/health/ready")
    assert caplog.records == []
    ask("GET", "/health/ready", 503)
    assert len(caplog.records) == 1


def test_a_request_that_was_broken_off_has_status_0(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(ConnectionResetError):
        ask("POST", "/v1/completions", 0)
    assert " /v1/completions 0 " in caplog.text


def test_a_client_that_left_before_its_answer_is_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ask("POST", "/v1/completions", None)
    (record,) = caplog.records
    words = record.getMessage().split(" ")
    assert (words[2:4], words[-1]) == (["/v1/completions", "499"], "req-7")
