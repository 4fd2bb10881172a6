"""Videos: frames that stand for a video, a few of each second, within limits that are checked before they are decoded.

Needs the package av, imported by whoever decodes. The container is told by its first bytes and forced upon FFmpeg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import RequestError
from edgellm.media.content_types import HEAD_BYTES, video_container_of
from edgellm.media.image_decoding import Pixels, decode_rgb, too_many_pixels
from edgellm.media.limits import IMAGE_PIXELS_MAX, IMAGE_SIDE_PIXELS_MAX, VIDEO_FRAMES_MAX, ImageLimits
from edgellm.media.visual_budget import VisualBudget

_FORMAT = "rgb24"
_DEGREES_A_QUARTER = 90


@dataclass(frozen=True, slots=True)
class VideoFrames:
    """``pixels`` has shape (frames, height, width, 3); ``fps`` is how many of them there are for a second."""

    pixels: Pixels
    fps: float
    timestamps_seconds: Sequence[float]


def decode_video(
    content: mmap, fps: float, frames_max: int, pixels_left: int, *, place: str, budget: VisualBudget | None = None
) -> VideoFrames:
    """``fps`` frames of each second, evenly, and at most ``frames_max`` or what ``budget`` allows, down to one.

    Raises RequestError for what is no video of a format that is taken, is damaged, or is beyond the limits.
    """
    import av

    container = video_container_of(content[:HEAD_BYTES])
    if container is None:
        raise RequestError(f"{place} must be a video: mp4, mov, webm, mkv or avi.", param=place)
    try:
        with av.open(content, mode="r", format=container, metadata_errors="ignore") as opened:
            return _sampled(opened, fps, frames_max, pixels_left, place, budget)
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        if isinstance(error, RequestError):
            raise
        # FFmpeg's own words are about its insides, and may quote the file.
        raise RequestError(f"{place} cannot be decoded as {container}: it is damaged.", param=place) from None


def decode_frames(
    contents: Sequence[mmap], fps: float, pixels_left: int, *, place: str, budget: VisualBudget | None = None
) -> VideoFrames:
    """A video that came as its frames. Raises RequestError, also where they are not of one size."""
    frames: list[Pixels] = []
    for index, content in enumerate(contents):
        frame_place = f"{place}, frame {index}"
        try:
            frame = decode_rgb(content, ImageLimits(request_pixels_left=pixels_left), place=frame_place)
        except RequestError as error:
            raise RequestError(error.message, param=place) from None
        pixels_left -= frame.size // 3
        if frames and frame.shape != frames[0].shape:
            (height, width, _), (first_height, first_width, _) = frame.shape, frames[0].shape
            raise RequestError(
                f"{frame_place} has {width} x {height} pixels, and frame 0 has {first_width} x {first_height}.",
                param=place,
            )
        if budget is not None and not frames:
            height, width, _ = frame.shape
            budget.frames_for(len(contents), width, height, place=place, may_be_fewer=False)
        frames.append(frame)
    return VideoFrames(np.stack(frames), fps, [index / fps for index in range(len(frames))])


def _sampled(
    opened: Any, fps: float, frames_max: int, pixels_left: int, place: str, budget: VisualBudget | None
) -> VideoFrames:
    if not opened.streams.video:
        raise RequestError(f"{place} holds no video.", param=place)
    track = opened.streams.video[0]
    width, height = track.codec_context.width, track.codec_context.height
    if not 0 < width * height <= IMAGE_PIXELS_MAX or max(width, height) > IMAGE_SIDE_PIXELS_MAX:
        raise RequestError(
            f"{place} has frames of {width} x {height} pixels; they may have {IMAGE_PIXELS_MAX}.", param=place
        )
    frame_count = _count_frames(opened, track, place)
    rate = float(track.average_rate or track.guessed_rate or 0)
    if not 0 < rate < VIDEO_FRAMES_MAX:
        raise RequestError(f"{place} does not say how many frames it has a second.", param=place)
    wanted = min(max(1, round(frame_count / rate * fps)), frames_max, frame_count)
    if budget is not None:
        wanted = budget.frames_for(wanted, width, height, place=place)
    if wanted * width * height > pixels_left:
        raise too_many_pixels(wanted * width * height, pixels_left, place)
    chosen = np.linspace(0, frame_count - 1, wanted).round().astype(int)
    track.codec_context.thread_count = 1  # each thread keeps frames of its own
    opened.seek(0)
    pixels = np.empty((wanted, height, width, 3), np.uint8)
    taken = turned = 0
    for index, frame in enumerate(opened.decode(track)):
        if index != chosen[taken]:
            continue
        turned = frame.rotation
        pixels[taken] = frame.to_ndarray(format=_FORMAT, width=width, height=height)
        taken += 1
        if taken == wanted:
            break
    if taken < wanted:
        raise RequestError(f"{place} holds {frame_count} frames, and not all can be decoded.", param=place)
    quarters = round(turned / _DEGREES_A_QUARTER) % 4
    upright: npt.NDArray[np.uint8] = np.ascontiguousarray(np.rot90(pixels, quarters, axes=(1, 2)))
    seconds = [float(index / rate) for index in chosen]
    return VideoFrames(upright, wanted * rate / frame_count, seconds)


def _count_frames(opened: Any, track: Any, place: str) -> int:
    """By the packets there are: what a container says of itself is not believed."""
    frame_count = 0
    for packet in opened.demux(track):
        frame_count += packet.size > 0
        if frame_count > VIDEO_FRAMES_MAX:
            raise RequestError(f"{place} has more than {VIDEO_FRAMES_MAX} frames.", param=place)
    if frame_count == 0:
        raise RequestError(f"{place} holds no video.", param=place)
    return frame_count
