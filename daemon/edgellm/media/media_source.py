"""MediaSource: where the content of a chat's part is, as the part says it, in any of the shapes that clients use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgellm.errors import RequestError, UnsupportedParameterError
from edgellm.media.limits import SAMPLED_FRAMES_MAX
from edgellm.media.media_file import MediaFile
from edgellm.media.media_input import MediaKind

AUDIO_FORMATS: Final = ("wav", "mp3", "flac")
FRAMES_PER_SECOND_MAX: Final = 60.0

_DETAILS: Final = ("auto", "low", "high", "original")
# The fields that hold the content, first the one that is named like the type.
_FIELDS_OF_KIND: Final[Mapping[MediaKind, tuple[str, ...]]] = {
    "image": ("image_url", "image"),
    "audio": ("input_audio", "audio_url", "audio"),
    "video": ("video_url", "video"),
}


@dataclass(frozen=True, slots=True)
class MediaSource:
    """``place`` is the part's JSON path, ``field`` that of its content. ``texts`` are one URL or path, or the frames of
    a video; with ``is_base64`` the content itself. ``media_type`` is what the client says it is, such as image/png.

    ``files`` are there instead of texts where an earlier request brought them.
    """

    kind: MediaKind
    place: str
    field: str
    texts: tuple[str, ...] = ()
    is_base64: bool = False
    media_type: str | None = None
    resizes: bool = True
    fps: float | None = None
    files: tuple[MediaFile, ...] = ()


def source_of_part(part: Mapping[str, Any], kind: MediaKind, place: str) -> MediaSource:
    """Of a part of OpenAI's chats or responses, which brings that kind. Raises RequestError."""
    if part.get("file_id") is not None:
        raise UnsupportedParameterError(
            f"{place}.file_id is not supported: this server keeps no files; send a data URL.", param=f"{place}.file_id"
        )
    name = next((name for name in _FIELDS_OF_KIND[kind] if part.get(name) is not None), _FIELDS_OF_KIND[kind][0])
    content, field = part.get(name), f"{place}.{name}"
    _check_detail(part.get("detail"), f"{place}.detail")
    resizes = part.get("do_resize")
    if resizes is not None and not isinstance(resizes, bool):
        raise RequestError(f"{place}.do_resize must be true or false.", param=f"{place}.do_resize")
    common: dict[str, Any] = {"resizes": resizes is not False, "fps": _fps(part.get("fps"), f"{place}.fps")}
    if isinstance(content, Mapping):
        _check_detail(content.get("detail"), f"{field}.detail")
        if kind == "audio" and "url" not in content:
            return _audio(content, place, field)
        content, field = content.get("url"), f"{field}.url"
    if kind == "video" and isinstance(content, list):
        return MediaSource(kind, place, field, _frames(content, field), **common)
    return MediaSource(kind, place, field, (_text(content, field),), **common)


def source_of_block(source: object, place: str) -> MediaSource:
    """Of the ``source`` of an Anthropic image block at ``place``. Raises RequestError."""
    field = f"{place}.source"
    if not isinstance(source, Mapping):
        raise RequestError(f"{field} must be an object.", param=field)
    match source.get("type"):
        case "base64":
            media_type = _text(source.get("media_type"), f"{field}.media_type")
            data = _text(source.get("data"), f"{field}.data")
            return MediaSource("image", place, f"{field}.data", (data,), is_base64=True, media_type=media_type)
        case "url":
            return MediaSource("image", place, f"{field}.url", (_text(source.get("url"), f"{field}.url"),))
        case "file":
            raise UnsupportedParameterError(
                f"{field}.type file is not supported: this server keeps no files; send base64.", param=f"{field}.type"
            )
        case _:
            raise RequestError(f"{field}.type must be base64 or url.", param=f"{field}.type")


def _audio(content: Mapping[str, Any], place: str, field: str) -> MediaSource:
    name = content.get("format")
    if name not in AUDIO_FORMATS:
        raise RequestError(f"{field}.format must be one of {', '.join(AUDIO_FORMATS)}.", param=f"{field}.format")
    data = _text(content.get("data"), f"{field}.data")
    return MediaSource("audio", place, f"{field}.data", (data,), is_base64=True, media_type=f"audio/{name}")


def _frames(content: list[Any], field: str) -> tuple[str, ...]:
    if not 0 < len(content) <= SAMPLED_FRAMES_MAX:
        raise RequestError(f"{field} must have 1 to {SAMPLED_FRAMES_MAX} frames, and has {len(content)}.", param=field)
    return tuple(_text(frame, f"{field}[{index}]") for index, frame in enumerate(content))


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise RequestError(f"{field} must be a string that is not empty.", param=field)
    return value


def _fps(value: object, field: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= FRAMES_PER_SECOND_MAX:
        raise RequestError(f"{field} must be a number above 0 and at most {FRAMES_PER_SECOND_MAX:g}.", param=field)
    return float(value)


def _check_detail(value: object, field: str) -> None:
    """Taken and without effect: how large an image is looked at is the model's own rule."""
    if value is not None and value not in _DETAILS:
        raise RequestError(f"{field} must be one of {', '.join(_DETAILS)}.", param=field)
