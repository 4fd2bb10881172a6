"""A real daemon in a process of its own, on a free port, and what tests need to know about it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

MODEL = "smollm2"
START_DEADLINE_SECONDS = 120.0
STATE_DEADLINE_SECONDS = 60.0
_LISTENING = re.compile(r"listening on (https?://\S+:\d+)")


class Daemon:
    """``edgellm serve`` with further options. What it writes is kept and shown when it does not do as it should."""

    def __init__(
        self,
        source: Path | None,
        *options: str,
        env: Mapping[str, str] | None = None,
        authority: Path | None = None,
        within: Callable[[Sequence[str]], list[str]] = list,
    ) -> None:
        """``within`` gives the command that runs a command somewhere else, such as in another network.

        Without a ``source`` the options say what is served.
        """
        self.verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=authority) if authority else True
        self._folder = tempfile.TemporaryDirectory(prefix="edgellm-admin-")
        self.admin_socket = Path(self._folder.name) / "admin.sock"
        env = {**(os.environ if env is None else env), "EDGELLM_ADMIN_SOCKET": str(self.admin_socket)}
        models = [] if source is None else [f"{MODEL}={source}"]
        command = [sys.executable, "-m", "edgellm", "serve", "--port", "0", *models, *options]
        self.process = subprocess.Popen(
            within(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        )
        self.lines: list[str] = []
        self._url: str | None = None
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if self._url is None and (match := _LISTENING.search(line)):
                self._url = match[1]
                self._listening.set()
        self._listening.set()

    @property
    def log(self) -> str:
        return "".join(self.lines)

    @property
    def url(self) -> str:
        assert self._listening.wait(START_DEADLINE_SECONDS), self.log
        assert self._url is not None, f"the daemon ended with {self.process.wait(10)}:\n{self.log}"
        return self._url

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.partition("://")[2].rpartition(":")
        return host, int(port)

    def wait_until_ready(self) -> Daemon:
        self.wait_for(lambda: self.get("/health/ready").status_code == 200, START_DEADLINE_SECONDS)
        return self

    def wait_for(self, condition: Callable[[], bool], deadline_seconds: float = STATE_DEADLINE_SECONDS) -> None:
        deadline = time.monotonic() + deadline_seconds
        while not condition():
            assert self.process.poll() is None, f"the daemon ended:\n{self.log}"
            assert time.monotonic() < deadline, f"the daemon did not get there:\n{self.health()}\n{self.log}"
            time.sleep(0.02)

    def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.get("/health").json()
        return answer

    def model_health(self) -> dict[str, Any]:
        model: dict[str, Any] = self.health()["models"][MODEL]
        return model

    def scheduling(self, counter: str) -> int:
        """A counter of the runtime, as the worker told it with its last ping: wait for what it should become."""
        value: int = (self.model_health()["lanes"][0]["scheduling"] or {}).get(counter, 0)
        return value

    def is_idle(self) -> bool:
        model = self.model_health()
        return bool(model["running"] == model["waiting"] == self.health()["running_requests"] == 0)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", verify=self.verify, timeout=STATE_DEADLINE_SECONDS)

    def post(self, path: str, value: Any, **further: Any) -> httpx.Response:
        return httpx.post(
            f"{self.url}{path}", json=value, timeout=STATE_DEADLINE_SECONDS, verify=self.verify, **further
        )

    def chat(self, content: str = "Say hello.", **fields: Any) -> httpx.Response:
        fields = {"max_tokens": 8, "temperature": 0, **fields}
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields})

    def text(self, content: str, **fields: Any) -> str:
        answer = self.chat(content, **fields)
        assert answer.status_code == 200, answer.text
        said: str = answer.json()["choices"][0]["message"]["content"]
        return said

    def still_serves(self) -> None:
        assert self.text("Say hello."), self.log

    def talk(self, *pieces: bytes, pause_seconds: float = 0.0, deadline_seconds: float = 60.0) -> bytes:
        """Bytes over one connection of its own; returns all that comes back until the server closes it."""
        with socket.create_connection(self.address, timeout=deadline_seconds) as connection:
            for piece in pieces:
                try:
                    connection.sendall(piece)
                except OSError:  # the server has said all it had to say
                    break
                time.sleep(pause_seconds)
            received = b""
            try:
                while data := connection.recv(65536):
                    received += data
            except ConnectionResetError:
                pass
            return received

    def reload(self, *options: str) -> tuple[int, str]:
        """Exit code of ``edgellm reload``, and what it says."""
        command = [sys.executable, "-m", "edgellm", "reload", "--admin-socket", str(self.admin_socket), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=STATE_DEADLINE_SECONDS)
        return done.returncode, done.stdout + done.stderr

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        return self.process.wait(STATE_DEADLINE_SECONDS)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STATE_DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._folder.cleanup()


def request_bytes(body: bytes, path: str = "/v1/chat/completions", *headers: bytes) -> bytes:
    head = [
        f"POST {path} HTTP/1.1".encode(),
        b"Host: localhost",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        *headers,
    ]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def chat_bytes(content: str = "Count to one hundred.", **fields: Any) -> bytes:
    body = {"messages": [{"role": "user", "content": content}], "temperature": 0, **fields}
    return request_bytes(json.dumps(body).encode())


def error_of(answer: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    error: dict[str, Any] = json.loads(body)["error"]
    return int(head.split(b" ", 2)[1]), error
