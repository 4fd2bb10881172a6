"""The peer: a bare Starlette loop of server-sent events over the same source, on uvicorn with uvloop and httptools.

It has no queue, no validation, no cancellation, no counters; its source wakes it once a step for all streams.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from tests.bench.synthetic_source import SyntheticSource, obey


class Queues:
    """A queue a stream."""

    def __init__(self) -> None:
        self._queues: list[asyncio.Queue[str | None]] = []

    def open(self) -> asyncio.Queue[str | None]:
        self._queues.append(asyncio.Queue())
        return self._queues[-1]

    @property
    def open_streams(self) -> int:
        return len(self._queues)

    def give(self, text: str | None) -> None:
        for queue in self._queues:
            queue.put_nowait(text)

    def end(self) -> None:
        self.give(None)
        self._queues = []


async def serve(pipe: Path) -> None:
    queues = Queues()
    source = SyntheticSource(pipe, queues)
    loop = asyncio.get_running_loop()
    loop.add_reader(source.descriptor, source.read_pipe)

    async def chat(request: Request) -> StreamingResponse:
        body = await request.json()
        queue = queues.open()
        head = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": body["model"],
        }

        async def events() -> AsyncIterator[str]:
            while (text := await queue.get()) is not None:
                source.took_chunk()
                choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
                yield f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, http="httptools", log_config=None, access_log=False, lifespan="off"))

    def stop() -> None:
        server.should_exit = True

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=obey, args=(source, port, loop.call_soon_threadsafe, stop), daemon=True).start()
        await server.serve(sockets=[listener])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1])))
