"""ClientPresence: notices that a client has left, while its request waits, runs or streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from starlette.types import Receive

from edgellm.api.json_body import ClientGoneError

Result = TypeVar("Result")


class ClientPresence:
    """``async with`` watches the connection, whose body has been read. Nothing is polled."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._on_leave: Callable[[], None] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watch = asyncio.create_task(self._until_gone())
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        assert self._watch is not None  # noqa: S101  # set on entry
        self._watch.cancel()
        await asyncio.wait((self._watch,))

    @property
    def gone(self) -> bool:
        return self._watch is not None and self._watch.done()

    def on_leave(self, callback: Callable[[], None]) -> None:
        """Call once when the client leaves, or now if it already has."""
        self._on_leave = callback
        if self.gone:
            callback()

    async def unless_gone(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of ``work``; when the client leaves first, ``work`` is cancelled and ClientGoneError raised."""
        assert self._watch is not None  # noqa: S101  # set on entry
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        if task.cancelled():
            raise ClientGoneError
        return task.result()

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._on_leave is not None:
            self._on_leave()
