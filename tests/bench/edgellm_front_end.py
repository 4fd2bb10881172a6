"""Our whole front end, from HTTP to the runtime's contract, with a synthetic source behind that contract."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

import uvloop
from tests.bench.synthetic_source import SyntheticSource, obey
from tests.unit.runtime.scripted_model import scripted_llm
from tests.unit.runtime.scripted_runtime import FinishReason, LLMGenerationResponse, ScriptedModule, StreamChunk

from edgellm.api.app import create_app
from edgellm.api.server import HttpServer
from edgellm.runtime.llm_options import ContextCacheConfig
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.in_process_lane import InProcessLane
from edgellm.serving.model_spec import ModelSpec, OpenedModel, ReportProgress

STREAMS_MAX = 64


class Signal:
    """The runtime's descriptor is the source's."""

    source: SyntheticSource

    def fileno(self) -> int:
        return self.source.descriptor

    def clear(self) -> None:
        self.source.read_pipe()


class Channel:
    source: SyntheticSource

    def __init__(self) -> None:
        self._chunks: deque[StreamChunk] = deque()
        self._cancelled = False

    @classmethod
    def create(cls) -> Channel:
        return cls()

    def set_skip_special_tokens(self, skip: bool) -> None: ...

    def set_signal(self, signal: Signal) -> None:
        self.source.look_again()

    def push(self, chunk: StreamChunk) -> None:
        self._chunks.append(chunk)

    def try_pop(self) -> StreamChunk | None:
        if not self._chunks:
            return None
        chunk = self._chunks.popleft()
        if not chunk.finished:
            self.source.took_chunk()
        return chunk

    def is_cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True


class Handle:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._ended = False

    def end(self) -> None:
        self.channel.push(StreamChunk(finished=True, reason=FinishReason.END_ID, prompt_token_count=1))
        self._ended = True
        self.channel.source.look_again()

    def ready(self) -> bool:
        return self._ended

    def cancel(self) -> None:
        """Only by whoever leaves at the very end."""

    def get(self) -> LLMGenerationResponse:
        return LLMGenerationResponse([[]], [""], [FinishReason.END_ID], [1])


class Engine:
    """Says what the source says, to every request but the first, which is the warm-up."""

    def __init__(self) -> None:
        self._running: list[Handle] = []
        self._submitted = 0

    queued = 0
    resident = 0

    def submit(self, request: Any) -> Handle:
        handle = Handle(request.stream_channels[0])
        self._submitted += 1
        if self._submitted == 1:
            handle.end()
        else:
            self._running.append(handle)
        return handle

    def shutdown(self, mode: Any) -> None: ...

    @property
    def open_streams(self) -> int:
        return len(self._running)

    def give(self, text: str) -> None:
        chunk = StreamChunk(text, [7], 1)  # a runtime makes its own in native code: that is no part of the front end
        for handle in self._running:
            handle.channel.push(chunk)

    def end(self) -> None:
        ended, self._running = self._running, []
        for handle in ended:
            handle.end()


class SyntheticModule(ScriptedModule):
    StreamChannel = Channel  # type: ignore[assignment]

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.StreamSignal = Signal  # type: ignore[assignment]
        self._engine = engine

    def RequestEngine(self, *_: Any, **__: Any) -> Any:
        return self._engine


async def serve(pipe: Path) -> None:
    engine = Engine()
    source = SyntheticSource(pipe, engine)
    Channel.source = Signal.source = source
    options = {"max_batch_size": STREAMS_MAX, "context_cache": ContextCacheConfig(False)}
    lane = InProcessLane(scripted_llm(SyntheticModule(engine), **options))

    async def open_lanes(report: ReportProgress) -> OpenedModel:
        return OpenedModel([lane])

    client = EngineClient([ModelSpec("synthetic", open_lanes)])
    client.start()
    await client.opened()
    server = HttpServer(create_app(client))
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        arguments = (source, port, loop.call_soon_threadsafe, server.stop)
        threading.Thread(target=obey, args=arguments, daemon=True).start()
        await server.run_on([listener])
    await client.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1])))
