"""MediaBody: the JSON body of a chat as it comes, without the media in it, which go to files of their own meanwhile.

A body of hundreds of megabytes is base64 for the most part. Long strings of it are decoded piece by piece, never held
as text, and stand in the JSON as a mark that no client can know. Where such a string turns out to be text after all,
it is put back.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgellm.api.json_body import too_large
from edgellm.media.base64_file import Base64File
from edgellm.media.data_url import HEADER_CHARACTERS_MAX, data_url_header
from edgellm.media.limits import BYTES_MAX, VIDEO_BYTES_MAX
from edgellm.parsing.messages import KIND_OF_PART

DIVERTED_CHARACTERS_MIN: Final = 64 * 2**10  # of a string; shorter ones are as well parsed with the rest

_QUOTE_OR_ESCAPE: Final = re.compile(rb'["\\]')
_QUOTE, _ESCAPE, _SLASH = b'"', b"\\", b"/"
_RESULT_BLOCK: Final = "tool_result"
_PARTS_WITH_FILES: Final = frozenset({*KIND_OF_PART, "document", "input_file"})


@dataclass(frozen=True, slots=True)
class DivertedMedia:
    """``header`` is that of a data URL, "" for plain base64."""

    header: str
    content: Base64File

    def text(self) -> bytes:
        """As it came."""
        return self.header.encode("latin-1") + self.content.text()


class MediaBody:
    """``text`` is the JSON of what came. ``hold`` is told how many bytes more the files take, and may refuse them."""

    def __init__(self, text_bytes_max: int, hold: Callable[[int], None]) -> None:
        self._text_bytes_max = self._text_bytes_left = text_bytes_max
        self.text = bytearray()
        self.media: dict[str, DivertedMedia] = {}
        self._hold = hold
        self._mark = secrets.token_hex(16)
        self._is_in_string = False
        self._begin = 0  # of the string in text
        self._may_be_media = False
        self._is_escaped = False
        self._header = ""
        self._content: Base64File | None = None

    def feed(self, piece: bytes) -> None:
        """Raises what ``hold`` does, HttpError (413), and OSError where the machine has no memory for a file."""
        text_bytes = len(self.text)
        position = 0
        while position < len(piece):
            if not self._is_in_string:
                position = self._outside(piece, position)
            elif self._is_escaped:
                self._is_escaped = False
                self._take(piece[position : position + 1], is_escaped=True)
                position += 1
            else:
                position = self._in_string(piece, position)
        self._count_text(len(self.text) - text_bytes)

    def close(self) -> None:
        """Give all files up. Idempotent."""
        for diverted in self.media.values():
            diverted.content.file.close()
        if self._content is not None:
            self._content.file.close()

    def restored(self, body: dict[str, Any]) -> dict[str, Any]:
        """The parsed ``text`` with strings that are no media as they were: marks stay in parts that bring media."""
        if not self.media:
            return body
        return {self._text_of(name): self._messages(value) for name, value in body.items()}

    def _outside(self, piece: bytes, position: int) -> int:
        quote = piece.find(_QUOTE, position)
        if quote < 0:
            self.text += piece[position:]
            return len(piece)
        self.text += piece[position : quote + 1]
        self._is_in_string, self._begin, self._may_be_media = True, len(self.text), True
        return quote + 1

    def _in_string(self, piece: bytes, position: int) -> int:
        match = _QUOTE_OR_ESCAPE.search(piece, position)
        stop = len(piece) if match is None else match.start()
        if stop > position:
            self._take(piece[position:stop])
        if match is None:
            return stop
        if match[0] == _ESCAPE:
            self._is_escaped = True
        else:
            self._end_string()
        return stop + 1

    def _take(self, characters: bytes, *, is_escaped: bool = False) -> None:
        if self._content is None:
            self.text += _ESCAPE + characters if is_escaped else characters
            if self._may_be_media and len(self.text) - self._begin >= DIVERTED_CHARACTERS_MIN:
                self._divert()
            return
        if is_escaped and characters != _SLASH:  # the only escape that base64 is ever written with
            self._put_back(_ESCAPE + characters)
            return
        try:
            self._hold(self._content.feed(characters))
        except ValueError:
            self._put_back(characters)

    def _divert(self) -> None:
        """Try it once with a string that became long."""
        self._may_be_media = False
        characters = bytes(self.text[self._begin :]).replace(_ESCAPE + _SLASH, _SLASH)
        header = data_url_header(characters[:HEADER_CHARACTERS_MAX].decode("latin-1"))
        begin, media_type = (0, "") if header is None else header
        bytes_max = BYTES_MAX.get(media_type.partition("/")[0], VIDEO_BYTES_MAX)
        content = Base64File(bytes_max)
        try:
            self._hold(content.feed(characters[begin:]))
        except ValueError:
            content.file.close()
            return
        except BaseException:
            content.file.close()
            raise
        self._header, self._content = characters[:begin].decode("latin-1"), content
        del self.text[self._begin :]

    def _end_string(self) -> None:
        content = self._content
        if content is not None:
            try:
                self._hold(content.finish())
            except ValueError:
                self._put_back(b"")
            else:
                mark = f"{self._mark}-{len(self.media)}"
                self.media[mark] = DivertedMedia(self._header, content)
                self.text += mark.encode()
                self._content = None
        self.text += _QUOTE
        self._is_in_string = False

    def _put_back(self, characters: bytes) -> None:
        """It was text after all."""
        content, self._content = self._content, None
        assert content is not None  # noqa: S101  # there is one while a string is diverted
        self.text += self._text_again(DivertedMedia(self._header, content)) + characters

    def _text_again(self, diverted: DivertedMedia) -> bytes:
        content = diverted.content
        if content.is_too_large or content.size_bytes > self._text_bytes_left:
            raise too_large(self._text_bytes_max)
        text = diverted.text()
        self._hold(-content.size_bytes)
        content.file.close()
        return text

    def _count_text(self, size_bytes: int) -> None:
        self._text_bytes_left -= size_bytes
        if self._text_bytes_left < 0:
            raise too_large(self._text_bytes_max)

    # Of what was parsed

    def _messages(self, value: Any) -> Any:
        """Of one field: where it is a list of messages, their parts are looked at."""
        if not isinstance(value, list):
            return self._plain(value)
        return [self._message(each) if isinstance(each, dict) else self._plain(each) for each in value]

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {
            self._text_of(name): self._parts(value) if name in ("content", "output") else self._plain(value)
            for name, value in message.items()
        }

    def _parts(self, content: Any) -> Any:
        if not isinstance(content, list):
            return self._plain(content)
        return [self._part(part) for part in content]

    def _part(self, part: Any) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in _PARTS_WITH_FILES:
            return part
        return self._message(part) if kind == _RESULT_BLOCK else self._plain(part)

    def _plain(self, value: Any) -> Any:
        """The parser has bounded the depth."""
        if isinstance(value, str):
            return self._text_of(value)
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        if isinstance(value, dict):
            return {self._text_of(name): self._plain(each) for name, each in value.items()}
        return value

    def _text_of(self, text: str) -> str:
        diverted = self.media.pop(text, None) if text.startswith(self._mark) else None
        if diverted is None:
            return text
        restored = self._text_again(diverted)
        self._count_text(len(restored))
        return restored.decode("ascii")
