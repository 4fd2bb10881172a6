"""RequestMedia: what one request brings beside its text, from its first byte until the request has ended.

Whatever requests hold together is bounded, however it came: in the body, from a file of this machine, from elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from starlette.types import Receive

from edgellm.api.error_mapping import HttpError
from edgellm.api.json_body import ClientGoneError, too_large
from edgellm.api.media_body import MediaBody
from edgellm.api.media_settings import MediaSettings
from edgellm.errors import RequestError, ServerBusyError
from edgellm.media.local_files import is_remote, local_path, open_local_file
from edgellm.media.media_file import MediaFile
from edgellm.media.media_input import MediaInput
from edgellm.media.media_source import MediaSource
from edgellm.media.remote_files import fetch, remote_url
from edgellm.media.source_files import (
    bytes_max_of,
    check_counts,
    check_file,
    content_error,
    content_header,
    fields_of,
    inline_content,
    is_inline,
)


class MediaLedger:
    """Counts the bytes that media of all requests hold."""

    def __init__(self, settings: MediaSettings) -> None:
        self.settings = settings
        self.held_bytes = 0

    def hold(self, more_bytes: int) -> None:
        """Raises ServerBusyError for more than there may be."""
        if more_bytes > 0 and self.held_bytes + more_bytes > self.settings.bytes_max:
            raise ServerBusyError("Requests with too many large images, videos or sounds are being served.")
        self.held_bytes += more_bytes


class RequestMedia:
    """Used from the event loop. ``release`` gives all files up, also those of its inputs."""

    def __init__(self, ledger: MediaLedger, text_bytes_max: int) -> None:
        self._ledger = ledger
        self._settings = ledger.settings
        self._held_bytes = 0
        self._files: list[MediaFile] = []
        self._text_bytes_max = text_bytes_max
        self._body: MediaBody | None = None
        self.given: Sequence[MediaInput] = ()

    async def read(self, receive: Receive, deadline_seconds: float) -> MediaBody:
        """The whole body. Raises HttpError (413, 408), ServerBusyError or ClientGoneError."""
        self._body = body = MediaBody(self._text_bytes_max, self._hold)
        try:
            async with asyncio.timeout(deadline_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    body.feed(message.get("body", b""))
                    more = message.get("more_body", False)
        except TimeoutError:
            raise HttpError(
                408, "The request body did not arrive in time.", "request_timeout", [(b"connection", b"close")]
            ) from None
        except OSError:
            raise _no_memory() from None
        return body

    async def inputs(self, sources: Sequence[MediaSource]) -> Sequence[MediaInput]:
        """The files of the sources, each checked for what it is. Raises RequestError with the field that is wrong."""
        check_counts(sources)
        try:
            self.given = [await self._input(source) for source in sources]
        except OSError:
            raise _no_memory() from None
        return self.given

    def release(self) -> None:
        """Idempotent."""
        if self._body is not None:
            self._body.close()
        for file in self._files:
            file.close()
        self._ledger.hold(-self._held_bytes)
        self._held_bytes = 0

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """What takes them on releases them; where that does not come about they go at once."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    async def _input(self, source: MediaSource) -> MediaInput:
        files = [file.again() for file in source.files]
        self._files += files
        for text, field in zip(source.texts, fields_of(source), strict=True):
            files.append(await self._file(source, text, field))  # each is given up if a later one fails
        return MediaInput(source.kind, source.place, tuple(files), source.resizes, source.fps)

    async def _file(self, source: MediaSource, text: str, field: str) -> MediaFile:
        diverted = None if self._body is None else self._body.media.get(text)
        if diverted is not None:
            if bool(diverted.header) is source.is_base64:
                raise content_error(source, field)
            _, media_type = content_header(source, diverted.header, field)
            file, size_bytes = diverted.content.file, diverted.content.size_bytes
        else:
            file, media_type = await self._opened(source, text, field)
            self._files.append(file)
            size_bytes = file.size_bytes
        check_file(source, file, size_bytes, media_type, field)
        return file

    async def _opened(self, source: MediaSource, text: str, field: str) -> tuple[MediaFile, str | None]:
        """The file, and what it is said to be."""
        if is_inline(source, text):
            content, media_type = inline_content(source, text, field)
            self._hold(content.file.size_bytes)
            return content.file, media_type
        if is_remote(text):
            url = remote_url(text, self._settings.remote_hosts, field)
            bytes_max = bytes_max_of(source)
            self._hold(bytes_max)  # until it is known
            try:
                file = await fetch(url, bytes_max, self._settings.remote_seconds_max, field)
            finally:
                self._hold(-bytes_max)
            self._hold(file.size_bytes)
            return file, None
        path = local_path(text)
        if path is None:
            raise RequestError(f"{field} must be a data URL, or an http, https or file URL.", param=field)
        return await asyncio.to_thread(open_local_file, path, self._settings.local_root, field), None

    def _hold(self, more_bytes: int) -> None:
        if self._held_bytes + more_bytes > self._settings.request_bytes_max:
            raise too_large(self._settings.request_bytes_max)
        self._ledger.hold(more_bytes)
        self._held_bytes += more_bytes


def _no_memory() -> ServerBusyError:
    return ServerBusyError("There is no memory for these media now.")
