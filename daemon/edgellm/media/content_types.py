"""What a file is by its first bytes, whatever its sender calls it. For a front end, which decodes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgellm.errors import RequestError
from edgellm.media.media_input import MediaKind

HEAD_BYTES: Final = 32
IMAGE_FORMATS: Final = "png, jpeg, webp, gif or bmp"

_FORMATS_OF_KIND: Final[Mapping[MediaKind, str]] = {
    "image": IMAGE_FORMATS,
    "audio": "wav, mp3 or flac",
    "video": "mp4, mov, webm, mkv or avi",
}
# What clients call what the first bytes say; a type that is not here says nothing.
_NAMES: Final[Mapping[str, str]] = {
    "image/png": "png",
    "image/apng": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/pjpeg": "jpeg",
    "image/webp": "webp",
    "image/gif": "gif",
    "image/bmp": "bmp",
    "image/x-ms-bmp": "bmp",
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "video/mp4": "mov",
    "video/quicktime": "mov",
    "video/x-m4v": "mov",
    "video/webm": "matroska",
    "video/x-matroska": "matroska",
    "video/matroska": "matroska",
    "video/avi": "avi",
    "video/x-msvideo": "avi",
    "video/vnd.avi": "avi",
}
_OF_ANY_CONTENT: Final = ("", "application/octet-stream")


def image_format_of(head: bytes) -> str | None:
    """The name of the format that begins so; None for one that is not taken."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    for beginning, name in (
        (b"\x89PNG\r\n\x1a\n", "png"),
        (b"\xff\xd8\xff", "jpeg"),
        (b"GIF87a", "gif"),
        (b"GIF89a", "gif"),
        (b"BM", "bmp"),
    ):
        if head.startswith(beginning):
            return name
    return None


def container_of(head: bytes) -> str | None:
    """FFmpeg's name of the container that begins so; None for one that is not taken."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "wav"
    if head[4:8] == b"ftyp":
        return "mov"
    for beginning, name in ((b"fLaC", "flac"), (b"OggS", "ogg"), (b"\x1aE\xdf\xa3", "matroska"), (b"ID3", "mp3")):
        if head.startswith(beginning):
            return name
    return "mp3" if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2 else None


def video_container_of(head: bytes) -> str | None:
    """FFmpeg's name of the container that begins so; None for one that is not taken."""
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    name = container_of(head)
    return name if name in ("mov", "matroska") else None


def check_content(kind: MediaKind, head: bytes, media_type: str | None, field: str) -> None:
    """Raise RequestError, about ``field``, for what is of another kind, or is not what its sender calls it."""
    match kind:
        case "image":
            found = image_format_of(head)
        case "video":
            found = video_container_of(head)
        case _:
            container = container_of(head)
            found = container if container in ("wav", "mp3", "flac") else None
    if found is None:
        raise RequestError(f"{field} must be {_FORMATS_OF_KIND[kind]}.", param=field)
    if media_type is None or media_type in _OF_ANY_CONTENT:
        return
    said = _NAMES.get(media_type)
    if said is None or media_type.partition("/")[0] != kind:
        known = ", ".join(sorted(name for name in _NAMES if name.startswith(f"{kind}/")))
        raise RequestError(f"{field} has a media type that is not taken; it may be {known}.", param=field)
    if said != found:
        raise RequestError(f"{field} is said to be {media_type}, and its content is {found}.", param=field)
