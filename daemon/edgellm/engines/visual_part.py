"""The visual part of a native bundle: ``visual/visual.gguf``, the vision tower and its connector, and
``visual/config.json``, which says how images are made ready for it and where their rows stand in a prompt.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgellm.engines.gguf_file import GgufFile
from edgellm.engines.json_file import MAX_COUNT, Fields, read_object
from edgellm.engines.resources.native_memory import VisionShape
from edgellm.errors import BundleDamagedError, CheckpointError

VISUAL_FOLDER = "visual"
VISUAL_MODEL_FILE = "visual.gguf"
VISUAL_CONFIG_FILE = "config.json"
MAX_CONFIG_BYTES = 1 << 20

TILES_PER_IMAGE_MAX = 65
"""Squares of the vision tower's size that one image may be cut into, its whole counted too: 8 x 8 and the whole."""

AROUND_IMAGE = "<fake_token_around_image>"
IMAGE_PLACEHOLDER = "<image>"
GLOBAL_IMAGE = "<global-img>"


@dataclass(frozen=True, slots=True)
class ImageProcessing:
    """``image_size`` and ``longest_edge`` in pixels; a pixel's value enters the tower as (value x ``rescale_factor`` -
    ``mean``) / ``deviation`` of its colour. ``resample`` is Pillow's number of a filter.
    """

    image_size: int
    longest_edge: int
    resizes: bool
    splits: bool
    resample: int
    rescale_factor: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    tokens_per_tile: int
    image_token_id: int

    def as_config(self, model_type: str) -> dict[str, Any]:
        """The contents of visual/config.json."""
        values = asdict(self)
        return {"model_type": model_type, **{key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}}

    @classmethod
    def of_bundle(cls, directory: Path) -> ImageProcessing | None:
        """None for a bundle of text alone. Raises BundleDamagedError naming file and field."""
        folder = directory / VISUAL_FOLDER
        if not folder.is_dir():
            return None
        model = folder / VISUAL_MODEL_FILE
        if not model.is_file() or model.stat().st_size == 0:
            raise BundleDamagedError(f"{model}: missing or empty: the bundle is damaged")
        path = folder / VISUAL_CONFIG_FILE
        try:
            return cls._read(Fields(path, read_object(path, MAX_CONFIG_BYTES)))
        except CheckpointError as error:
            raise BundleDamagedError(f"{error}: the bundle is damaged") from None

    @classmethod
    def _read(cls, fields: Fields) -> ImageProcessing:
        splits = _flag(fields, "splits")
        processing = cls(
            image_size=fields.count("image_size"),
            longest_edge=fields.count("longest_edge"),
            resizes=_flag(fields, "resizes"),
            splits=splits,
            resample=_resample(fields),
            rescale_factor=fields.number("rescale_factor"),
            mean=_colours(fields, "mean"),
            deviation=_colours(fields, "deviation"),
            tokens_per_tile=fields.count("tokens_per_tile"),
            image_token_id=_token_id(fields, "image_token_id"),
        )
        if processing.longest_edge > processing.image_size * TILES_PER_IMAGE_MAX:
            fields.fail("longest_edge", "is too large")
        return processing


def vision_shape(gguf: GgufFile) -> VisionShape:
    """What the memory of a load of that tower depends on. Raises CheckpointError."""

    def number(key: str) -> int:
        value = gguf.metadata.get(f"clip.vision.{key}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise CheckpointError(f"{gguf.path}: clip.vision.{key} is not a positive number")
        return value

    return VisionShape(
        gguf.size_bytes,
        (number("image_size") // number("patch_size")) ** 2,
        number("attention.head_count"),
        number("embedding_length"),
        number("feed_forward_length"),
    )


def _token_id(fields: Fields, name: str) -> int:
    ids = fields.token_ids(name, MAX_COUNT)
    if len(ids) != 1:
        fields.fail(name, "is not one token id")
    return ids[0]


def _flag(fields: Fields, name: str) -> bool:
    value = fields.flag(name)
    if value is None:
        fields.fail(name, "is missing")
    return value


def _resample(fields: Fields) -> int:
    value = fields.values.get("resample")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 5:
        fields.fail("resample", "is not a number from 0 to 5")
    return value


def _colours(fields: Fields, name: str) -> tuple[float, ...]:
    value = fields.values.get(name)
    if not isinstance(value, list) or len(value) != 3:
        fields.fail(name, "is not a list of 3 numbers")
    for number in value:
        if isinstance(number, bool) or not isinstance(number, int | float):
            fields.fail(name, "is not a list of 3 numbers")
    return tuple(float(number) for number in value)
