"""Plain files in a compressed tar stream: the same input gives the same bytes, and nothing but plain files is read."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from typing import BinaryIO, NoReturn

import zstandard

from edgellm.errors import BundleDamagedError

BLOCK_BYTES = 512
COPY_BYTES = 1 << 20
COMPRESSION_LEVEL = 3
# Bounds what a hostile frame makes the decompressor reserve; our own frames use far less.
MAX_WINDOW_BYTES = 1 << 27
MAX_MEMBER_NAME_BYTES = 100
# A few bytes of a hostile frame can stand for a block of 128 KiB: this much of it stays below 64 MiB.
FEED_BYTES = 2048
_END = bytes(2 * BLOCK_BYTES)


class TarWriter:
    """Close with ``finish``; the stream below stays open."""

    def __init__(self, stream: BinaryIO) -> None:
        # One thread and a checksum of the content: the bytes depend on the input alone.
        compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True, threads=0)
        self._stream = compressor.stream_writer(stream, closefd=False)
        self._left_bytes = 0
        self._padding_bytes = 0

    def begin(self, name: str, size_bytes: int) -> None:
        """Raises ValueError for a name that one header block cannot hold."""
        if len(name.encode()) > MAX_MEMBER_NAME_BYTES:
            raise ValueError(f"the name {name!r} is over {MAX_MEMBER_NAME_BYTES} bytes")
        info = tarfile.TarInfo(name)
        info.size = size_bytes
        self._stream.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict"))
        self._left_bytes = size_bytes
        self._padding_bytes = -size_bytes % BLOCK_BYTES

    def write(self, block: bytes) -> None:
        self._left_bytes -= len(block)
        if self._left_bytes < 0:
            raise ValueError("a member is longer than was said")
        self._stream.write(block)

    def end(self) -> None:
        if self._left_bytes:
            raise ValueError("a member is shorter than was said")
        self._stream.write(bytes(self._padding_bytes))

    def add(self, name: str, content: bytes) -> None:
        self.begin(name, len(content))
        self.write(content)
        self.end()

    def finish(self) -> None:
        self._stream.write(_END)
        self._stream.close()  # type: ignore[no-untyped-call]


class TarReader:
    """Reads members in order. Raises BundleDamagedError that names ``label`` for whatever is not as it must be."""

    def __init__(self, stream: BinaryIO, label: str) -> None:
        self._label = label
        self._stream = stream
        self._frame = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
        self._plain = memoryview(b"")

    def fail(self, reason: str) -> NoReturn:
        raise BundleDamagedError(f"{self._label}: {reason}")

    def begin(self, expected: str) -> tuple[str, int]:
        """Name and size of the next member; ``expected`` says in errors what should be there."""
        header = self._read(BLOCK_BYTES, f"before {expected}")
        if not any(header):
            self.fail(f"ends where {expected} should be: it is not whole")
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError):
            self.fail(f"is no engine archive, or damaged, where {expected} should be")
        if info.type != tarfile.REGTYPE or info.linkname:
            self.fail(f"holds {info.name[:200]!r}, which is no plain file, where {expected} should be")
        if info.size < 0:
            self.fail(f"gives {info.name[:200]!r} no size")
        return info.name, info.size

    def expect(self, name: str, size_bytes: int) -> None:
        """Begin the member that must come next."""
        found_name, found_bytes = self.begin(name)
        if found_name != name:
            self.fail(f"holds {found_name[:200]!r} where {name} should be")
        if found_bytes != size_bytes:
            self.fail(f"{name} has {found_bytes} bytes there, {size_bytes} by its manifest")

    def copy(self, name: str, size_bytes: int, write: Callable[[bytes], object]) -> None:
        """Give ``write`` the content of the member that was begun, in pieces."""
        left_bytes = size_bytes
        while left_bytes:
            block = self._read(min(COPY_BYTES, left_bytes), f"inside {name}")
            write(block)
            left_bytes -= len(block)
        if any(self._read(-size_bytes % BLOCK_BYTES, f"after {name}")):
            self.fail(f"hides something after {name}")

    def content(self, name: str, size_bytes: int, most_bytes: int) -> bytes:
        if size_bytes > most_bytes:
            self.fail(f"{name} has {size_bytes} bytes, which is more than the {most_bytes} that are read")
        content = bytearray()
        self.copy(name, size_bytes, content.extend)
        return bytes(content)

    def finish(self) -> None:
        """Nothing but the end may follow, and the frame must be whole to its checksum."""
        if any(self._read(len(_END), "at its end")):
            self.fail("holds more than its manifest says")
        while not self._plain and not self._frame.eof:
            self._feed("before its checksum")
        if self._plain or self._frame.unused_data or self._stream.read(1):
            self.fail("goes on after its end")

    def _read(self, size_bytes: int, where: str) -> bytes:
        content = bytearray()
        while len(content) < size_bytes:
            if not self._plain:
                self._feed(where)
            wanted_bytes = size_bytes - len(content)
            content += self._plain[:wanted_bytes]
            self._plain = self._plain[wanted_bytes:]
        return bytes(content)

    def _feed(self, where: str) -> None:
        block = b"" if self._frame.eof else self._stream.read(FEED_BYTES)
        if not block:
            self.fail(f"ends {where}: it is not whole")
        try:
            self._plain = memoryview(self._frame.decompress(block))
        except zstandard.ZstdError as error:
            self.fail(f"is no engine archive, or damaged ({error})")
