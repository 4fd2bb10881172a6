"""Bad input over real sockets: a clear error each time, and the server keeps serving."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import MODEL, Daemon, chat_bytes, error_of, request_bytes

DEEP = 100_000
MESSAGES = b'{"messages":[{"role":"user","content":"hi"}]'
BODIES: dict[str, tuple[bytes, int]] = {
    "malformed": (b'{"messages": [', 400),
    "empty": (b"", 400),
    "an array": (b"[]", 400),
    "NaN": (MESSAGES + b',"temperature":NaN}', 400),
    "Infinity": (MESSAGES + b',"top_p":-Infinity}', 400),
    "1e999": (MESSAGES + b',"temperature":1e999}', 400),
    "wrong types": (b'{"messages":"hi","temperature":"hot"}', 400),
    "deep arrays": (b"[" * DEEP + b"]" * DEEP, 400),
    "deep arrays inside": (MESSAGES + b',"metadata":' + b"[" * DEEP + b"]" * DEEP + b"}", 400),
    "deep objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, 400),
    "open brackets": (b"[" * DEEP, 400),
    "a lone surrogate": (b'{"messages":[{"role":"user","content":"\\ud83d"}]}', 400),
    "a lone surrogate in a stop string": (MESSAGES + b',"stop":"\\udc00"}', 400),
    "no UTF-8": (b'{"messages":[{"role":"user","content":"\xff\xfe"}]}', 400),
    "an unknown field": (MESSAGES + b',"surprise":1}', 400),
    "an unknown model": (MESSAGES + b',"model":"other"}', 404),
    "a negative seed": (MESSAGES + b',"seed":-1}', 400),
    "a huge integer": (MESSAGES + b',"seed":' + b"9" * 4000 + b"}", 400),
    "no messages": (b'{"messages":[]}', 400),
    "too many choices": (MESSAGES + b',"n":1000000}', 400),
    "a path as model": (MESSAGES + b',"model":"../../etc/passwd"}', 404),
}


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_a_bad_body_is_refused_and_the_next_request_answered(daemon: Daemon, body: bytes, status: int) -> None:
    answered, error = error_of(daemon.talk(request_bytes(body, "/v1/chat/completions", b"Connection: close")))
    assert answered == status
    assert set(error) == {"message", "type", "param", "code"}
    assert "/" not in error["message"].replace("GET /v1/models", "")
    daemon.still_serves()


def test_a_prompt_that_is_too_long_names_the_limit(daemon: Daemon) -> None:
    answer = daemon.chat("word " * 9000)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "max_input_len" in error["message"] or "max_kv_cache_capacity" in error["message"]
    daemon.still_serves()


def test_a_prompt_of_megabytes_is_refused_without_being_tokenised(daemon: Daemon) -> None:
    """Only a prompt that was not tokenised has "at least" so many tokens."""
    for path, prompt in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "w\u00f6rd " * 500_000}]}),
        ("/v1/completions", {"prompt": "word " * 500_000}),
    ):
        answer = daemon.post(path, {"model": MODEL, **prompt})
        assert answer.status_code == 400
        assert "has at least " in answer.json()["error"]["message"]
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "word " * 500_000}]}
    answer = daemon.post("/v1/messages/count_tokens", asked)
    assert (answer.status_code, "are counted" in answer.json()["error"]["message"]) == (400, True)
    daemon.still_serves()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 1000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 3_000_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403),
        (b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 403),
        (b"GET http://a@evil.example:80/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 403),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"PUT /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 415),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\n\r\n{",
            413,
        ),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + b"100000\r\n" + b"x" * 0x100000 + b"\r\n" * 1
            + (b"100000\r\n" + b"x" * 0x100000 + b"\r\n") * 9,
            413,
        ),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: a b\r\nConnection: close\r\n\r\n", 400),
    ],
    ids=["TLS", "many headers", "a huge header", "a long path", "no host", "a foreign host", "a foreign target",
         "a foreign target that hides", "an unknown path",
         "a wrong method", "no content type", "a told huge body", "an untold huge body", "a bad request id"],
)  # fmt: skip
def test_bad_bytes_get_an_error_object(daemon: Daemon, sent: bytes, status: int) -> None:
    answered, error = error_of(daemon.talk(sent))
    assert answered == status
    assert set(error) == {"message", "type", "param", "code"}
    daemon.still_serves()


def test_good_requests_in_unusual_bytes_are_answered(daemon: Daemon) -> None:
    body = chat_bytes("Say hi.", max_tokens=2).partition(b"\r\n\r\n")[2]
    head = b"POST /v1//chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    close = b"Connection: close\r\n\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    assert b"200 OK" in daemon.talk(head + chunked + close + pieces)
    expecting = head + b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(body) + close
    answer = daemon.talk(expecting, body, pause_seconds=0.1)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert b"200 OK" in answer
    dribbled = request_bytes(body, "/v1/chat/completions", b"Connection: close")
    assert b"200 OK" in daemon.talk(*(dribbled[i : i + 9] for i in range(0, len(dribbled), 9)), pause_seconds=0.002)
    assert daemon.talk(b"GET /health/live HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")
    target = b"GET http://localhost:9/v1/models HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n"
    assert b"200 OK" in daemon.talk(target)
    pipelined = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n" * 2 + b"GET /health/live HTTP/1.0\r\n\r\n"
    assert daemon.talk(pipelined).count(b"200 OK") == 3


def test_head_answers_without_a_body(daemon: Daemon) -> None:
    for path in ("/v1/models", "/health/ready", "/", "/metrics", "/v1/models/smollm2"):
        answer = httpx.head(f"{daemon.url}{path}")
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer.headers["content-length"]) > 0


def test_slow_clients_are_cut_off_and_hold_nobody_up(start_daemon: StartDaemon, tmp_path: Any) -> None:
    config = tmp_path / "edgellm.toml"
    config.write_text(
        "[server]\nheader_deadline_seconds = 0.3\nbody_deadline_seconds = 0.3\nwrite_deadline_seconds = 0.3\n"
    )
    daemon = start_daemon("--config", str(config))
    assert daemon.talk(b"GET / HTTP/1.1\r\nHost: localho") == b""  # closed without an answer
    slow_body = daemon.talk(request_bytes(b"x" * 100)[:-50])
    assert error_of(slow_body.split(b"\r\n\r\n", 1)[0] + b"\r\n\r\n" + slow_body.split(b"\r\n\r\n", 1)[1])[0] == 408
    slow = [socket.create_connection(daemon.address) for _ in range(100)]
    try:
        daemon.still_serves()
    finally:
        for connection in slow:
            connection.close()


def test_no_text_of_a_request_appears_in_the_log(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--log-level", "debug")
    canary = "xylophone-canary-4711"
    daemon.text(canary)
    daemon.chat(canary, surprise=canary)
    daemon.chat(canary, temperature=canary)
    daemon.chat("x", **{canary: 1})
    daemon.talk(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n{"' + canary.encode())
    httpx.get(f"{daemon.url}/{canary}?{canary}")
    daemon.stop()
    assert canary not in daemon.log
