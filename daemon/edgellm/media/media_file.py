"""MediaFile: bytes of a request that are too large for a frame, in an anonymous file of the kernel's."""

from __future__ import annotations

import io
import os
import wave
from typing import BinaryIO

SILENCE_RATE_HZ = 16_000


class MediaFile:
    """Owns the descriptor of a memory file. ``close`` is idempotent; nothing of it outlives its last descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def empty(cls) -> MediaFile:
        return cls(os.memfd_create("edgellm-media", os.MFD_CLOEXEC))

    def fileno(self) -> int:
        """-1 once closed."""
        return self._descriptor

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def append(self, piece: bytes) -> None:
        """Raises OSError where the machine has no memory for it."""
        view = memoryview(piece)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def again(self) -> MediaFile:
        """The same bytes, held by another owner too."""
        return MediaFile(os.dup(self._descriptor))

    def reader(self) -> BinaryIO:
        """The bytes from their beginning, with a position that no other reader moves."""
        return open(f"/proc/self/fd/{self._descriptor}", "rb")

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def silence(duration_seconds: int) -> MediaFile:
    """A WAV file in which nothing is said."""
    content = io.BytesIO()
    with wave.open(content, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(SILENCE_RATE_HZ)
        sound.writeframes(bytes(2 * SILENCE_RATE_HZ * duration_seconds))
    media = MediaFile.empty()
    media.append(content.getvalue())
    return media
