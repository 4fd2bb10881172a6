"""Speaks ASGI to the application: bytes in, bytes out, no socket; the client may leave when it likes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message
from tests.unit.serving.scripted_lane import ScriptedLane, spec_of

from edgellm.api.app import create_app
from edgellm.api.settings import ApiSettings
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model_spec import ModelSpec
from edgellm.serving.records import RecordSettings
from edgellm.serving.settings import ServingSettings

USER_MESSAGE = {"role": "user", "content": "Say hi"}
HeaderPairs = Sequence[tuple[str, str]]


@dataclass
class Answer:
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"message", "type", "param", "code"}
        error: dict[str, Any] = self.json["error"]
        return error

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1
        return values[0] if values else None

    @property
    def events(self) -> list[Any]:
        """Events of a stream; the closing [DONE] is the string."""
        assert self.body.endswith(b"\n\n")
        lines = [line for line in self.body.decode().split("\n\n") if line and not line.startswith(":")]
        assert all(line.startswith("data: ") and "\n" not in line for line in lines)
        return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


class Exchange:
    """One request under way. ``leave`` closes the connection."""

    def __init__(self, app: ASGIApp, scope: dict[str, Any], body: Sequence[bytes]) -> None:
        self.answer = Answer()
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        for index, piece in enumerate(body):
            more = index < len(body) - 1
            self._incoming.put_nowait({"type": "http.request", "body": piece, "more_body": more})
        self._writable = asyncio.Event()
        self._writable.set()
        self.task = asyncio.ensure_future(app(scope, self._incoming.get, self._send))

    def send_on(self, piece: bytes) -> None:
        """A piece of a body that goes on."""
        self._incoming.put_nowait({"type": "http.request", "body": piece, "more_body": True})

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    def stop_reading(self) -> None:
        self._writable.clear()

    def read_on(self) -> None:
        self._writable.set()

    async def _send(self, message: Message) -> None:
        await self._writable.wait()
        if message["type"] == "http.response.start":
            assert self.answer.status == 0
            self.answer.status = message["status"]
            self.answer.headers = [(name.decode(), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            assert not self.answer.complete
            if message.get("body"):
                self.answer.pieces.append(message["body"])
            self.answer.complete = not message.get("more_body", False)

    async def done(self) -> Answer:
        await asyncio.wait_for(asyncio.shield(self.task), 20)
        return self.answer


class AsgiClient:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    @property
    def app(self) -> Any:
        return self._app

    def start(
        self,
        method: str,
        path: str,
        body: bytes | Sequence[bytes] = b"",
        headers: HeaderPairs = (),
        host: str | None = "localhost:8000",
    ) -> Exchange:
        hosts = [] if host is None else [("host", host)]
        if method == "POST" and not {"content-length", "transfer-encoding"} & {name for name, _ in headers}:
            headers = [*headers, ("transfer-encoding", "chunked")]  # as a client that was given an iterator
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in [*hosts, *headers]],
            "client": ("192.0.2.1", 50000),
            "server": ("127.0.0.1", 8000),
            "state": {},
        }
        return Exchange(self._app, scope, [body] if isinstance(body, bytes) else list(body))

    async def request(self, method: str, path: str, body: bytes = b"", **further: Any) -> Answer:
        return await self.start(method, path, body, **further).done()

    async def get(self, path: str, **further: Any) -> Answer:
        return await self.request("GET", path, **further)

    def start_post(self, path: str, value: Any, headers: HeaderPairs = (), **further: Any) -> Exchange:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.start("POST", path, body, headers=[("content-type", "application/json"), *headers], **further)

    async def post(self, path: str, value: Any, headers: HeaderPairs = (), **further: Any) -> Answer:
        return await self.start_post(path, value, headers, **further).done()

    async def chat(self, headers: HeaderPairs = (), **fields: Any) -> Answer:
        return await self.post("/v1/chat/completions", {"messages": [USER_MESSAGE], **fields}, headers)

    def start_chat(self, headers: HeaderPairs = (), **fields: Any) -> Exchange:
        return self.start_post("/v1/chat/completions", {"messages": [USER_MESSAGE], **fields}, headers)

    async def complete(self, **fields: Any) -> Answer:
        return await self.post("/v1/completions", {"model": "tiny", "prompt": "Say hi", **fields})


@asynccontextmanager
async def application(
    *lanes: ScriptedLane,
    settings: ApiSettings | None = None,
    specs: Sequence[ModelSpec] = (),
    records: RecordSettings | None = None,
    **serving: Any,
) -> AsyncIterator[tuple[AsgiClient, EngineClient]]:
    engine = EngineClient(list(specs) or [spec_of(*lanes)], ServingSettings(**serving), records)
    engine.start()
    await engine.opened()
    try:
        yield AsgiClient(create_app(engine, settings)), engine
    finally:
        for lane in lanes:
            for generation in lane.generations:
                generation.let_go()
        await engine.close()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))
