"""Base64File: base64 that comes piece by piece becomes a MediaFile, strictly and without ever being held as text."""

from __future__ import annotations

import binascii
from typing import Final

from edgellm.media.media_file import MediaFile

_QUAD: Final = 4


class Base64File:
    """``file`` holds what was decoded, up to ``bytes_max`` of it; closed by its owner. ``size_bytes`` counts all."""

    def __init__(self, bytes_max: int) -> None:
        self.file = MediaFile.empty()
        self.size_bytes = 0
        self._bytes_max = bytes_max
        self._last = b""  # the end of what came, which may be the end of all
        self._last_size_bytes = 0  # of it decoded, once it was

    @property
    def is_too_large(self) -> bool:
        return self.size_bytes > self._bytes_max

    def feed(self, text: bytes) -> int:
        """Give how many bytes more are held. Raises ValueError for what is no base64, of which nothing is taken then,
        and OSError where the machine has no memory for it.
        """
        text = self._last + text
        whole = max(0, (len(text) - 1) // _QUAD) * _QUAD  # padding may only be at the end of all
        if b"=" in text[:whole]:
            raise ValueError("padding before the end")
        taken_bytes = self._append(text[:whole])
        self._last = text[whole:]
        return taken_bytes

    def finish(self) -> int:
        """No more comes. Gives and raises what ``feed`` does."""
        self._last_size_bytes = self._append(self._last)
        return self._last_size_bytes

    def text(self) -> bytes:
        """What came, as it was. Not for what is too large, which is not there."""
        with self.file.reader() as stream:
            content = stream.read(self.size_bytes - self._last_size_bytes)
        return binascii.b2a_base64(content, newline=False) + self._last

    def _append(self, quads: bytes) -> int:
        decoded = binascii.a2b_base64(quads, strict_mode=True) if quads else b""
        self.size_bytes += len(decoded)
        if self.is_too_large:
            return 0
        self.file.append(decoded)
        return len(decoded)


def base64_file(text: str, bytes_max: int) -> Base64File:
    """Raises ValueError for what is no base64."""
    decoding = Base64File(bytes_max)
    try:
        decoding.feed(text.encode("ascii"))
        decoding.finish()
    except BaseException:
        decoding.file.close()
        raise
    return decoding
