"""Uploads: multipart forms with one file, which goes to memory of its own while it comes, within size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from edgellm.api import limits
from edgellm.api.error_mapping import HttpError
from edgellm.api.json_body import ClientGoneError, too_large
from edgellm.errors import RequestError, ServerBusyError, UnsupportedParameterError
from edgellm.media.media_file import MediaFile

FILE_FIELD = "file"
_LIST_SUFFIX = "[]"


@dataclass(slots=True)
class Form:
    """``fields`` are texts by name; of names that end in ``[]`` lists of texts. ``release`` gives the file up."""

    file: MediaFile
    release: Callable[[], None]
    fields: dict[str, Any] = field(default_factory=dict)


class UploadReader:
    """What all uploads hold together is bounded, from their first byte until each is released."""

    def __init__(self, uploads_bytes_max: int = limits.UPLOADS_BYTES_MAX) -> None:
        self._uploads_bytes_max = uploads_bytes_max
        self._held_bytes = 0

    async def read(self, request: Request, deadline_seconds: float) -> Form:
        """Raises HttpError (413, 408, 415), RequestError, ServerBusyError or ClientGoneError."""
        parts = _Parts(request.headers.get("content-type", ""))
        held_bytes = 0
        is_whole = False

        def release() -> None:
            nonlocal held_bytes
            self._held_bytes -= held_bytes
            held_bytes = 0
            parts.file.close()

        try:
            async with asyncio.timeout(deadline_seconds):
                more = True
                while more:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    piece = message.get("body", b"")
                    more = message.get("more_body", False)
                    held_bytes += len(piece)
                    self._held_bytes += len(piece)
                    if held_bytes > limits.UPLOAD_BYTES_MAX:
                        raise too_large(limits.UPLOAD_BYTES_MAX)
                    if self._held_bytes > self._uploads_bytes_max:
                        raise ServerBusyError("Too many files are being sent at the same time.")
                    parts.feed(piece)
            parts.end()
            is_whole = True
        except TimeoutError:
            raise HttpError(
                408, "The request body did not arrive in time.", "request_timeout", [(b"connection", b"close")]
            ) from None
        except OSError:
            raise ServerBusyError("There is no memory for this file now.") from None
        finally:
            if not is_whole:
                release()
        return Form(parts.file, release, parts.fields)


class _Parts:
    """The parts of one form, as they come."""

    def __init__(self, content_type: str) -> None:
        try:
            from python_multipart.multipart import MultipartParser, parse_options_header
        except ImportError:
            raise UnsupportedParameterError(
                "This server takes no files: its audio extra is not installed.", param=FILE_FIELD
            ) from None
        self._options_of = parse_options_header
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not 0 < len(boundary) <= limits.BOUNDARY_BYTES_MAX:
            raise HttpError(415, "Send the body as multipart/form-data with a boundary.", "unsupported_media_type")
        self.file = MediaFile.empty()
        self.fields: dict[str, Any] = {}
        self._names: set[str] = set()
        self._text_bytes = 0
        self._name = self._value = b""
        self._disposition = b""
        self._part = ""
        self._text: list[bytes] | None = None  # of a part that is no file
        self._is_over = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_end,
                "on_part_data": self._data,
                "on_part_end": self._part_end,
                "on_end": self._over,
            },
        )

    def feed(self, piece: bytes) -> None:
        from python_multipart.exceptions import MultipartParseError

        try:
            self._parser.write(piece)
        except MultipartParseError:
            raise RequestError("The request body is not valid multipart/form-data.") from None

    def end(self) -> None:
        if not self._is_over:
            raise RequestError("The request body is not valid multipart/form-data: it ends too early.")
        if FILE_FIELD not in self._names:
            raise RequestError("file is required.", param=FILE_FIELD)

    def _begin(self) -> None:
        self._disposition = self._name = self._value = b""

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]
        self._count_text(end - start)

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._count_text(end - start)

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def _headers_end(self) -> None:
        _, options = self._options_of(self._disposition)
        self._part = options.get(b"name", b"").decode("utf-8", "replace")
        is_list = self._part.endswith(_LIST_SUFFIX)
        if not self._part or (self._part in self._names and not is_list):
            raise RequestError("The request body has a part without a name, or two of one name.")
        self._names.add(self._part)
        self._text = None if self._part == FILE_FIELD else []

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._text is None:
            self.file.append(data[start:end])
        else:
            self._count_text(end - start)
            self._text.append(data[start:end])

    def _part_end(self) -> None:
        if self._text is None:
            return
        try:
            text = b"".join(self._text).decode()
        except UnicodeDecodeError:
            raise RequestError("The request body holds text that is not valid UTF-8.") from None
        if self._part.endswith(_LIST_SUFFIX):
            self.fields.setdefault(self._part.removesuffix(_LIST_SUFFIX), []).append(text)
        else:
            self.fields[self._part] = text

    def _over(self) -> None:
        self._is_over = True

    def _count_text(self, size_bytes: int) -> None:
        self._text_bytes += size_bytes
        if self._text_bytes > limits.FORM_TEXT_BYTES_MAX:
            raise RequestError(f"The request body holds more than {limits.FORM_TEXT_BYTES_MAX} bytes beside its file.")
