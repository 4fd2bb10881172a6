"""VisualBudget: the tokens of a visual engine, shared by all images and videos of a request in whatever order.

Images are reserved first, wherever they stand. Then each video, in the order of the message, gets what remains and
takes what it needs of it. Without a video the runtime's own limits are all there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgellm.errors import RequestError
from edgellm.media.visual_limits import VideoFamily, VisualLimits

_REMEDY = "send fewer or shorter videos and fewer images, or build the engine with a larger max_image_tokens"


@dataclass(frozen=True, slots=True)
class FrameCost:
    """``group_frames`` frames have ``group_tokens`` tokens together, ``raw_group_tokens`` before any are pruned."""

    group_frames: int
    group_tokens: int
    raw_group_tokens: int

    def groups(self, frames: int) -> int:
        return -(-frames // self.group_frames)


class VisualBudget:
    def __init__(self, limits: VisualLimits, family: VideoFamily, image_count: int) -> None:
        self._limits = limits
        self._family = family
        self.tokens_left = limits.max_image_tokens - image_count * limits.image_tokens
        groups = limits.max_cu_seqlen_groups or limits.max_image_tokens // max(1, limits.min_image_tokens)
        self.groups_left: int | None = None if family == "internvl" else groups - image_count
        self._raw_tokens = image_count * limits.image_tokens

    def frames_for(self, wanted: int, width: int, height: int, *, place: str, may_be_fewer: bool = True) -> int:
        """How many frames of a video are looked at; what they need is taken. Raises RequestError where none fit.

        ``may_be_fewer`` False is for frames that the client chose.
        """
        cost = self.frame_cost(width, height)
        most = max(0, self.tokens_left // cost.group_tokens)
        if self.groups_left is not None:
            most = min(most, max(0, self.groups_left))
        frames = min(wanted, most * cost.group_frames)
        if frames < (1 if may_be_fewer else wanted):
            needed = cost.groups(1 if may_be_fewer else wanted) * cost.group_tokens
            raise RequestError(
                f"{place} needs at least {needed} visual tokens, and {max(0, self.tokens_left)} remain of the engine's "
                f"{self._limits.max_image_tokens}: {_REMEDY}.",
                param=place,
            )
        groups = cost.groups(frames)
        self.tokens_left -= groups * cost.group_tokens
        self._raw_tokens += groups * cost.raw_group_tokens
        if self.groups_left is not None:
            self.groups_left -= groups
        return frames

    def check(self, place: str) -> None:
        """Raise RequestError, about ``place``, for a request that as a whole does not fit the engine."""
        limits = self._limits
        if self.groups_left is not None and self.groups_left < 0:
            raise RequestError(f"{place}: the engine takes fewer images and videos at a time: send fewer.", param=place)
        if self.tokens_left < 0:
            raise RequestError(
                f"{place}: the images and videos of this request may have {self._raw_tokens} visual tokens; the engine "
                f"takes {limits.max_image_tokens}: {_REMEDY}.",
                param=place,
            )
        if self._raw_tokens < limits.min_image_tokens:
            raise RequestError(
                f"{place}: the images and videos of this request have {self._raw_tokens} visual tokens, and the engine "
                f"takes no fewer than {limits.min_image_tokens}: send a longer video, or build the engine with a "
                "smaller min_image_tokens.",
                param=place,
            )

    def frame_cost(self, width: int, height: int) -> FrameCost:
        limits = self._limits
        match self._family:
            case "nemotron":
                raw_tokens = max(1, int(limits.video_target_patches * limits.downsample_ratio**2))
                kept_tokens = max(1, math.ceil(raw_tokens * (1 - limits.pruning_rate)))
                return FrameCost(max(1, limits.video_temporal_patch_size), kept_tokens, raw_tokens)
            case "internvl":
                patches = limits.tile_size // limits.tile_patch_size if limits.tile_patch_size else 0
                tokens = int(patches * limits.downsample_ratio) ** 2 or limits.image_tokens
                return FrameCost(1, tokens, tokens)
            case "muse":
                tokens = limits.max_video_frame_tokens or limits.image_tokens
                return FrameCost(1, tokens, tokens)
            case _:
                side = limits.patch_size * limits.merge_size
                tokens = limits.image_tokens
                if side:
                    tokens = min(tokens, max(1, round(width / side)) * max(1, round(height / side)))
                if limits.max_video_frame_tokens:
                    tokens = min(tokens, limits.max_video_frame_tokens)
                return FrameCost(max(1, limits.temporal_patch_size), tokens, tokens)
