"""DeltaBuffer: hands deltas from lanes to one reader; what a slow reader has not taken yet comes as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from edgellm.runtime.deltas import merge_deltas
from edgellm.runtime.outputs import StreamDelta

WriteText = Callable[[str], bool]
"""Deals with the text of a delta that is nothing but text. False, with nothing done, where it cannot."""


class AtOnce(Protocol):
    """A reader that deals with deltas inside the lane's call while it waits, without being woken for each."""

    def take(self, index: int, delta: StreamDelta) -> bool:
        """Deal with a delta of the choice ``index``. False, with nothing done, where it cannot."""
        ...

    def text_writer(self, index: int) -> WriteText | None:
        """What deals with text alone of that choice as ``take`` would, whatever follows; None as long as there is
        none. Asked after each delta that was taken.
        """
        ...


class DeltaBuffer:
    """A reader gets at most one delta a choice each time, however slow it is. Used from one event loop."""

    def __init__(self) -> None:
        self._deltas: dict[int, list[StreamDelta]] = {}
        self._closed = False
        self._readable = asyncio.Event()
        self._at_once: AtOnce | None = None
        self._text_writers: dict[int, WriteText] = {}  # of a reader that waits
        self._reader_error: Exception | None = None

    def put_text(self, index: int, text: str, token_ids: list[int]) -> None:
        """The same as ``put`` of a delta of just this, which is only made where somebody needs it."""
        write_text = self._text_writers.get(index)
        if write_text is not None and text:
            try:
                if write_text(text):
                    return
            except Exception as error:  # as below
                self._reader_failed(error)
        self.put(index, StreamDelta(text, token_ids))

    def put(self, index: int, delta: StreamDelta) -> None:
        """Without effect once it is closed."""
        if self._closed:
            return
        at_once = self._at_once
        if at_once is not None:
            try:
                if at_once.take(index, delta):
                    write_text = at_once.text_writer(index)
                    if write_text is not None:
                        self._text_writers[index] = write_text
                    return
            except Exception as error:  # the reader's own failure: it is not the lane's to see
                self._reader_failed(error)
            self._read_later()
        waiting = self._deltas.get(index)
        if waiting is None:
            self._deltas[index] = [delta]
        else:
            waiting.append(delta)
        self._readable.set()

    def close(self) -> None:
        """What was put is still taken; after it, take() returns nothing."""
        self._closed = True
        self._read_later()
        self._readable.set()

    async def take(self, at_once: AtOnce | None = None) -> list[tuple[int, StreamDelta]]:
        """Wait for deltas. While it waits, each is first offered to ``at_once``, which runs inside the lane's call:
        those that it answers with True are dealt with, and the wait goes on.
        """
        if not self._deltas and not self._closed:
            self._readable.clear()
            self._at_once = at_once
            try:
                await self._readable.wait()
            finally:
                self._read_later()
        if self._reader_error is not None:
            raise self._reader_error
        taken, self._deltas = self._deltas, {}
        return [(index, merge_deltas(deltas)) for index, deltas in taken.items()]

    def _read_later(self) -> None:
        self._at_once = None
        self._text_writers.clear()

    def _reader_failed(self, error: Exception) -> None:
        self._reader_error = error
        self._read_later()
