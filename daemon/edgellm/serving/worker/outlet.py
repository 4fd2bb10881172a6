"""Outlet: how a worker's frames leave, in the order they were made.

A runtime that can write to the socket itself sends the chunks of its streams without waking the event loop. From then
on everything goes out through that runtime's end of the socket, so that there is one order.
"""

from __future__ import annotations

import asyncio

import msgspec

from edgellm.runtime.contract import DeltaFrames, FrameSocket
from edgellm.serving.worker.frames import FrameWriter

HAND_OVER_POLL_SECONDS = 0.01


class Outlet:
    """Used from the worker's event loop; the runtime writes to the same socket from its own threads."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._writer = FrameWriter()
        self._socket: FrameSocket | None = None
        self._is_flushing = False

    def send(self, message: msgspec.Struct) -> None:
        """Raises FrameTooLargeError."""
        frame = self._writer.frame(message)
        if self._transport.is_closing():
            return
        if self._socket is None:
            self._transport.write(frame)
            return
        self._socket.send(frame)
        if not self._is_flushing and self._socket.kept_bytes():
            self._is_flushing = True
            self._loop.add_writer(self._socket.fileno(), self._flush)

    def hand_over(self, socket: FrameSocket) -> None:
        """Send through ``socket`` as soon as everything before has left."""
        if not self._transport.get_write_buffer_size():
            self._socket = socket
        elif not self._transport.is_closing():
            self._loop.call_later(HAND_OVER_POLL_SECONDS, self.hand_over, socket)

    def delta_frames(self, stream: int, credit: int) -> DeltaFrames | None:
        """What a stream's generation can write to itself; None before ``hand_over``."""
        return None if self._socket is None else self._socket.delta_frames(stream, credit)

    @property
    def kept_bytes(self) -> int:
        """What has not left this process yet."""
        return self._transport.get_write_buffer_size() if self._socket is None else self._socket.kept_bytes()

    def close(self) -> None:
        """Nothing is sent any more."""
        if self._is_flushing and self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
            self._is_flushing = False

    def _flush(self) -> None:
        if self._socket is not None and self._socket.flush():
            self.close()
