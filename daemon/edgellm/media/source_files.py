"""From where a part's content is to a file of it, without a network: what every way to a model shares."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgellm.errors import RequestError
from edgellm.media.base64_file import Base64File, base64_file
from edgellm.media.content_types import HEAD_BYTES, check_content
from edgellm.media.data_url import data_url_header, is_data_url
from edgellm.media.limits import BYTES_MAX, FILES_MAX, IMAGE_BYTES_MAX, MEDIA_PARTS_MAX
from edgellm.media.local_files import is_remote, local_path, open_local_file
from edgellm.media.media_file import MediaFile
from edgellm.media.media_input import MediaInput
from edgellm.media.media_source import MediaSource


def check_counts(sources: Sequence[MediaSource]) -> None:
    """Raise RequestError for more parts or files than a request may have."""
    if len(sources) > MEDIA_PARTS_MAX:
        place = sources[MEDIA_PARTS_MAX].place
        raise RequestError(
            f"{place}: a request may have {MEDIA_PARTS_MAX} images, videos and sounds, and has {len(sources)}.",
            param=place,
        )
    files = sum(len(source.texts) or len(source.files) for source in sources)
    if files > FILES_MAX:
        place = sources[-1].place
        raise RequestError(
            f"{place}: a request may have {FILES_MAX} files and video frames, and has {files}.", param=place
        )


def fields_of(source: MediaSource) -> list[str]:
    """The JSON path of each of its texts."""
    if len(source.texts) == 1:
        return [source.field]
    return [f"{source.field}[{index}]" for index in range(len(source.texts))]


def bytes_max_of(source: MediaSource) -> int:
    """Of each of its files: frames that came by themselves are images."""
    return IMAGE_BYTES_MAX if _is_frames(source) else BYTES_MAX[source.kind]


def is_inline(source: MediaSource, text: str) -> bool:
    return source.is_base64 or is_data_url(text)


def inline_content(source: MediaSource, text: str, field: str) -> tuple[Base64File, str | None]:
    """The content of base64 or a data URL, and what it is said to be. Raises RequestError, OSError without memory."""
    begin, media_type = content_header(source, text, field)
    try:
        return base64_file(text[begin:], bytes_max_of(source)), media_type
    except ValueError:
        raise content_error(source, field) from None


def content_header(source: MediaSource, text: str, field: str) -> tuple[int, str | None]:
    """Where its base64 begins, and what it is said to be. Raises RequestError."""
    if source.is_base64:
        return 0, source.media_type
    header = data_url_header(text)
    if header is None:
        raise content_error(source, field)
    return header


def check_file(source: MediaSource, file: MediaFile, size_bytes: int, media_type: str | None, field: str) -> None:
    """Raise RequestError for a file that is too large, or not what it should be."""
    bytes_max = bytes_max_of(source)
    if size_bytes > bytes_max:
        raise RequestError(f"{field} has {size_bytes} bytes; {bytes_max} are allowed.", param=field)
    head = os.pread(file.fileno(), HEAD_BYTES, 0)
    check_content("image" if _is_frames(source) else source.kind, head, media_type, field)


def own_input(source: MediaSource) -> MediaInput:
    """For a program that asks a model of its own process: files are those that it may read itself, all of them.

    Raises RequestError.
    """
    files = []
    for text, field in zip(source.texts, fields_of(source), strict=True):
        media_type = None
        if is_inline(source, text):
            content, media_type = inline_content(source, text, field)
            file, size_bytes = content.file, content.size_bytes
        else:
            path = None if is_remote(text) else local_path(text)
            if path is None:
                raise RequestError(f"{field} must be a data URL or a file: nothing is fetched.", param=field)
            file = open_local_file(os.path.abspath(path), Path("/"), field)
            size_bytes = file.size_bytes
        check_file(source, file, size_bytes, media_type, field)
        files.append(file)
    return MediaInput(source.kind, source.place, tuple(files), source.resizes, source.fps)


def _is_frames(source: MediaSource) -> bool:
    return source.kind == "video" and len(source.texts) > 1


def content_error(source: MediaSource, field: str) -> RequestError:
    """The error of what is no base64, or no data URL, where it should be."""
    shape = "base64" if source.is_base64 else "a data URL with base64 in it (data:TYPE;base64,CONTENT)"
    return RequestError(f"{field} must be {shape}, with nothing else in it.", param=field)
