"""VisualLimits: what an engine for images and videos was compiled for, as its bundle says; families of videos."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from edgellm.errors import RequestError

VideoFamily = Literal["internvl", "muse", "nemotron", "qwen"]

FAMILIES: Final = "InternVL, Muse Glimmer, Nemotron-Omni, Qwen-VL and Cosmos3-Edge"
VISUAL_ENGINE: Final = "visual.engine"
FRAMES_PER_SECOND: Final[Mapping[VideoFamily, float]] = {"internvl": 2.0, "muse": 2.0, "nemotron": 1.0, "qwen": 2.0}
"""How many are looked at where a request does not say."""

_CONFIG_BYTES_MAX: Final = 8 << 20
_AUDIO_MARKS: Final = ("audio", "code2wav", "asr")
_QWEN_PREFIXES: Final = (
    *("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_omni"),
    "cosmos3_edge_vision",
)
_COSMOS: Final = "cosmos3_edge_vision"
_MUSE: Final = "muse_glimmer_vision"


class VisualLimits(msgspec.Struct, array_like=True, frozen=True):
    """Tokens are those of the model's input; 0 stands for what no file says. A group is what one run of attention
    covers.
    """

    model_type: str
    max_image_tokens: int
    min_image_tokens: int = 1
    max_image_tokens_per_image: int = 0
    max_cu_seqlen_groups: int = 0
    patch_size: int = 0
    merge_size: int = 0
    temporal_patch_size: int = 2
    checkpoint_max_image_tokens: int = 0
    max_video_frame_tokens: int = 0
    pruning_rate: float = 0.0
    video_temporal_patch_size: int = 2
    video_target_patches: int = 1024
    downsample_ratio: float = 0.5
    tile_size: int = 0
    tile_patch_size: int = 0

    @property
    def image_tokens(self) -> int:
        """The most that one image has."""
        return self.max_image_tokens_per_image or self.max_image_tokens


def visual_limits(folder: Path) -> VisualLimits | None:
    """Those of a bundle's visual folder; None where its files do not say how many tokens there may be."""
    config = _object_in(folder / "config.json")
    builder = config.get("builder_config")
    if not isinstance(builder, Mapping) or not _whole(builder, "max_image_tokens"):
        return None
    preprocessor = _object_in(folder / "preprocessor_config.json")
    preprocessor = preprocessor.get("image_processor", preprocessor)
    video = _object_in(folder / "processor_config.json").get("video_processor")
    model_type = str(config.get("model_type", ""))
    tile = config.get("vision_config", config)
    return VisualLimits(
        model_type=model_type,
        max_image_tokens=_whole(builder, "max_image_tokens"),
        min_image_tokens=_whole(builder, "min_image_tokens", 1),
        max_image_tokens_per_image=_whole(builder, "max_image_tokens_per_image"),
        max_cu_seqlen_groups=_whole(builder, "max_cu_seqlen_groups"),
        patch_size=_whole(preprocessor, "patch_size"),
        merge_size=_whole(preprocessor, "merge_size"),
        temporal_patch_size=_whole(preprocessor, "temporal_patch_size", 1 if model_type == _COSMOS else 2),
        checkpoint_max_image_tokens=_whole(preprocessor, "max_image_tokens"),
        max_video_frame_tokens=_whole(video, "max_video_frame_tokens"),
        pruning_rate=_number(config, "video_pruning_rate", 0.0),
        video_temporal_patch_size=_whole(config, "video_temporal_patch_size", 2),
        video_target_patches=_whole(config, "video_target_num_patches", 1024),
        downsample_ratio=_number(config, "downsample_ratio", 0.5),
        tile_size=_first(tile, "image_size"),
        tile_patch_size=_first(tile, "patch_size"),
    )


def video_family(folder: Path) -> VideoFamily | None:
    """How a bundle's visual engine takes videos; None where it takes none."""
    if not (folder / VISUAL_ENGINE).is_file():
        return None
    config = _object_in(folder / "config.json")
    model_type = str(config.get("model_type", ""))
    is_audio = any(mark in model_type for mark in _AUDIO_MARKS)
    if "internvl" in model_type:
        return "internvl"
    if model_type == _MUSE:
        return "muse"
    if "nemotron" in model_type and not is_audio and config.get("supports_video", True):
        return "nemotron"
    return "qwen" if model_type.startswith(_QWEN_PREFIXES) and not is_audio else None


class VisualRules(msgspec.Struct, array_like=True, frozen=True):
    """What a model's bundle says of images and videos together; ``family`` None: it takes no videos."""

    model_type: str = ""
    family: VideoFamily | None = None
    limits: VisualLimits | None = None

    @classmethod
    def of_folder(cls, folder: Path) -> VisualRules:
        model_type = str(_object_in(folder / "config.json").get("model_type", ""))
        return cls(model_type, video_family(folder), visual_limits(folder))

    def check(self, kinds: Sequence[str], place: str) -> None:
        """Raise RequestError, about ``place``, for videos that this model does not take, or not with those others.

        ``kinds`` are those of all parts. Without a video nothing is looked at.
        """
        videos, images = kinds.count("video"), kinds.count("image")
        if not videos:
            return
        if self.family is None:
            raise RequestError(
                f"{place}: a model of type {self.model_type!r} takes no videos; {FAMILIES} do.", param=place
            )
        if self.family == "nemotron" and (videos > 1 or images):
            raise RequestError(
                f"{place}: this model takes one video and no images beside it; there are {videos} videos and "
                f"{images} images.",
                param=place,
            )


def _object_in(path: Path) -> Mapping[str, Any]:
    """Empty where there is no file, or none that can be read."""
    try:
        if path.stat().st_size > _CONFIG_BYTES_MAX:
            return {}
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _whole(values: object, name: str, default: int = 0) -> int:
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def _number(values: Mapping[str, Any], name: str, default: float) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def _first(values: object, name: str) -> int:
    """Of a list such as height and width; 0 for anything else."""
    value = values.get(name) if isinstance(values, Mapping) else None
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, int) and not isinstance(first, bool) else 0
