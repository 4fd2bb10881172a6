"""Frames: how messages travel between the front end and a worker, as length-prefixed msgpack on a private socketpair.

A frame is its payload's length (4 bytes, little endian) and the payload. Whoever sends anything else is not spoken
to any more: there is no way to find the next frame behind a broken one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from edgellm.errors import WorkerFailedError

MAX_FRAME_BYTES = 8 << 20
_LENGTH = struct.Struct("<I")

Message = TypeVar("Message")


class FrameError(WorkerFailedError):
    """The other side sent something that is no frame of this protocol."""


class FrameTooLargeError(ValueError):
    """A message of our own that no frame can hold."""


class FrameWriter:
    """Serialises messages. Not thread-safe."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()

    def frame(self, message: msgspec.Struct) -> bytes:
        """Raises FrameTooLargeError for a message above MAX_FRAME_BYTES."""
        payload = self._encoder.encode(message)
        if len(payload) > MAX_FRAME_BYTES:
            raise FrameTooLargeError(f"a message of {len(payload)} bytes; a frame takes {MAX_FRAME_BYTES}")
        return _LENGTH.pack(len(payload)) + payload


class FrameReader(Generic[Message]):
    """Cuts a byte stream into messages of one union of types. Not thread-safe.

    Holds at most one incomplete frame, so at most MAX_FRAME_BYTES beyond what it was fed last.
    """

    def __init__(self, message_types: type[Message]) -> None:
        self._decoder = msgspec.msgpack.Decoder(message_types)
        self._buffer = bytearray()  # the beginning of a frame
        self._wanted_bytes = _LENGTH.size  # how much of it tells more

    @property
    def is_in_a_frame(self) -> bool:
        """Something came of a frame that is not whole yet."""
        return bool(self._buffer)

    def feed(self, received: bytes) -> Iterable[Message]:
        """The messages that are whole now. Raises FrameError, after which the reader is of no more use."""
        # One whole frame, as a token is: no copies and no buffer.
        if not self._buffer and len(received) > _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received)
            if len(received) == _LENGTH.size + length and length <= MAX_FRAME_BYTES:
                return (self._decode(received[_LENGTH.size :]),)
        return self._cut(received)

    def _cut(self, received: bytes) -> Iterator[Message]:
        if self._buffer:
            self._buffer += received
            if len(self._buffer) < self._wanted_bytes:  # a large frame is not copied again for each of its pieces
                return
            received, self._buffer = bytes(self._buffer), bytearray()
        begin, available = 0, len(received)
        self._wanted_bytes = _LENGTH.size
        try:
            while available - begin >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(received, begin)
                if length > MAX_FRAME_BYTES:
                    raise FrameError(f"a frame of {length} bytes was announced; {MAX_FRAME_BYTES} are allowed")
                end = begin + _LENGTH.size + length
                if available < end:
                    self._wanted_bytes = end - begin
                    break
                payload = received[begin + _LENGTH.size : end]
                begin = end
                yield self._decode(payload)
        finally:
            self._buffer += received[begin:]

    def _decode(self, payload: bytes) -> Message:
        try:
            return self._decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
            # What was wrong with it may quote it; that it was wrong is enough to know.
            raise FrameError("a frame holds no message of this protocol") from None
