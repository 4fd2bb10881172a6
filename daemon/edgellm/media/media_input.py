"""MediaInput: one image, video or sound that a part of a chat brought, before and after it was decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from edgellm.media.media_file import MediaFile

if TYPE_CHECKING:
    import numpy.typing as npt

MediaKind = Literal["image", "video", "audio"]


@dataclass(frozen=True, slots=True)
class MediaInput:
    """``place`` is the part's JSON path in the request. ``files`` is one, or the frames of a video, each an image; they
    are the caller's, and must outlive the request.

    ``fps`` is how many frames of a video's second are looked at, None for what its model takes. ``resizes`` allows the
    model to scale an image down to what it takes best.
    """

    kind: MediaKind
    place: str
    files: tuple[MediaFile, ...]
    resizes: bool = True
    fps: float | None = None


@dataclass(frozen=True, slots=True)
class DecodedMedia:
    """``samples``: an image (height, width, 3) or a video (frames, height, width, 3) of bytes, a sound of floats.

    The array is read-only and lies in memory that other processes share.
    """

    kind: MediaKind
    place: str
    samples: npt.NDArray[Any]
    resizes: bool = True
    fps: float = 1.0
    timestamps_seconds: Sequence[float] = ()
