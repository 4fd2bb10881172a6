"""TokenCounts: asks a worker how many tokens a prompt has, for runtimes that tokenise for themselves."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from itertools import count

from edgellm.errors import RequestError
from edgellm.runtime.generation import GenerationRequest
from edgellm.serving.worker.conversion import to_count, to_error
from edgellm.serving.worker.frames import FrameTooLargeError
from edgellm.serving.worker.messages import Counted
from edgellm.serving.worker.process import WorkerProcess


class TokenCounts:
    """Questions that wait for their answers. Used from the event loop, but for ``ask_from_thread``."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[int | None]] = {}
        process.when_lost(self._worker_lost)

    def ask_from_thread(self, request: GenerationRequest) -> int | None:
        """Wait for the count; None where the runtime cannot count beside running requests."""
        asking: Future[int | None] = asyncio.run_coroutine_threadsafe(self._ask(request), self._loop)
        return asking.result()

    def answered(self, message: Counted) -> None:
        waiting = self._waiting.pop(message.number, None)
        if waiting is None or waiting.done():
            return
        if message.error is not None:
            waiting.set_exception(to_error(message.error))
        else:
            waiting.set_result(message.tokens)

    async def _ask(self, request: GenerationRequest) -> int | None:
        if self._process.is_lost:
            raise self._process.lost_error()
        number = next(self._numbers)
        answer: asyncio.Future[int | None] = self._loop.create_future()
        self._waiting[number] = answer
        try:
            self._process.send(to_count(number, request))
            return await answer
        except FrameTooLargeError:
            raise RequestError("the request is too large for this model's worker") from None
        finally:
            self._waiting.pop(number, None)

    def _worker_lost(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._process.lost_error())
