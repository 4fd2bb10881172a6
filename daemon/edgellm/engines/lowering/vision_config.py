"""VisionConfig: what a checkpoint says about its vision tower and about how images are made ready for it.

Settings that change what the model computes and that the runtime does not have are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgellm.engines import checkpoint_names as names
from edgellm.engines.checkpoint import Checkpoint
from edgellm.engines.json_file import Fields
from edgellm.engines.lowering.model_config import VISION_FAMILIES
from edgellm.engines.visual_part import TILES_PER_IMAGE_MAX, ImageProcessing
from edgellm.errors import CheckpointError, UnsupportedModelError

IMAGE_PROCESSORS = ("Idefics3ImageProcessor", "SmolVLMImageProcessor")
_ACTIVATION = "gelu_pytorch_tanh"
_COLOURS = 3

# What the family's published configuration has where a checkpoint says nothing.
_HIDDEN_SIZE = 1152
_INTERMEDIATE_SIZE = 3072
_LAYERS = 12
_HEADS = 16
_IMAGE_SIZE = 224
_PATCH_SIZE = 32
_NORM_EPSILON = 1e-6
_SCALE_FACTOR = 2
_LONGEST_EDGE_PIXELS = 4 * 364
_RESAMPLE = 1  # Lanczos
_RESCALE_FACTOR = 1 / 255
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """Sizes in pixels, patches or values; ``projection_size`` is the decoder's hidden size."""

    image_size: int
    patch_size: int
    hidden_size: int
    intermediate_size: int
    layer_count: int
    head_count: int
    norm_epsilon: float
    scale_factor: int
    projection_size: int
    processing: ImageProcessing

    @property
    def patch_count(self) -> int:
        return (self.image_size // self.patch_size) ** 2

    @property
    def tokens_per_tile(self) -> int:
        return self.patch_count // self.scale_factor**2


def is_vision_model(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") in VISION_FAMILIES


def text_config(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The decoder's own settings; whether the output matrix is the embedding is said by the whole model's."""
    values = Fields(path, config).mapping("text_config")
    if not values:
        raise CheckpointError(f"{path}: text_config is missing")
    tied = config.get("tie_word_embeddings")
    return dict(values) if tied is None else {**values, "tie_word_embeddings": tied}


def vision_config(checkpoint: Checkpoint, projection_size: int, vocab_size: int) -> VisionConfig:
    """Raises UnsupportedModelError for what the runtime lacks, CheckpointError for what is missing or wrong."""
    path = checkpoint.directory / names.CONFIG_FILE
    model = Fields(path, checkpoint.config)
    values = model.mapping("vision_config")
    if not values:
        model.fail("vision_config", "is missing")
    fields = Fields(path, values, prefix="vision_config.")
    activation = fields.text("hidden_act") or _ACTIVATION
    if activation != _ACTIVATION:
        raise UnsupportedModelError(
            f"{path}: vision_config.hidden_act {activation[:40]!r} is not supported (supported: {_ACTIVATION})"
        )
    if fields.count("num_channels", _COLOURS) != _COLOURS:
        raise UnsupportedModelError(f"{path}: vision_config.num_channels is not supported (supported: {_COLOURS})")
    image_size = fields.count("image_size", _IMAGE_SIZE)
    patch_size = fields.count("patch_size", _PATCH_SIZE)
    hidden_size = fields.count("hidden_size", _HIDDEN_SIZE)
    head_count = fields.count("num_attention_heads", _HEADS)
    scale_factor = model.count("scale_factor", _SCALE_FACTOR)
    if image_size % patch_size:
        fields.fail("patch_size", f"({patch_size}) does not divide image_size ({image_size})")
    if hidden_size % head_count:
        fields.fail("num_attention_heads", f"({head_count}) does not divide hidden_size ({hidden_size})")
    if image_size // patch_size % scale_factor:
        model.fail("scale_factor", f"({scale_factor}) does not divide the {image_size // patch_size} patches of a side")
    tokens = (image_size // patch_size // scale_factor) ** 2
    return VisionConfig(
        image_size=image_size,
        patch_size=patch_size,
        hidden_size=hidden_size,
        intermediate_size=fields.count("intermediate_size", _INTERMEDIATE_SIZE),
        layer_count=fields.count("num_hidden_layers", _LAYERS),
        head_count=head_count,
        norm_epsilon=fields.number("layer_norm_eps", _NORM_EPSILON),
        scale_factor=scale_factor,
        projection_size=projection_size,
        processing=_processing(checkpoint, model, image_size, tokens, vocab_size),
    )


def _processing(
    checkpoint: Checkpoint, model: Fields, image_size: int, tokens_per_tile: int, vocab_size: int
) -> ImageProcessing:
    fields = _processor_fields(checkpoint)
    kind = fields.text("image_processor_type") or IMAGE_PROCESSORS[0]
    if kind.removesuffix("Fast") not in IMAGE_PROCESSORS:
        raise UnsupportedModelError(
            f"{fields.path}: image_processor_type {kind[:40]!r} is not supported "
            f"(supported: {', '.join(IMAGE_PROCESSORS)})"
        )
    _check_declared_tokens(checkpoint, tokens_per_tile)
    tile_size = _edge(fields, "max_image_size", image_size)
    if tile_size != image_size:
        raise UnsupportedModelError(
            f"{fields.path}: max_image_size.longest_edge ({tile_size}) is not vision_config.image_size ({image_size}), "
            "which is not supported"
        )
    image_token_ids = model.token_ids("image_token_id", vocab_size)
    if len(image_token_ids) != 1:
        model.fail("image_token_id", "is missing" if not image_token_ids else "is not one token id")
    longest_edge = _edge(fields, "size", _LONGEST_EDGE_PIXELS)
    splits = fields.flag("do_image_splitting") is not False
    tiles = (-(-longest_edge // image_size)) ** 2 + 1 if splits else 1
    if tiles > TILES_PER_IMAGE_MAX:
        raise UnsupportedModelError(
            f"{fields.path}: size.longest_edge ({longest_edge}) makes {tiles} tiles of an image, which is over the "
            f"{TILES_PER_IMAGE_MAX} that are supported"
        )
    resample = fields.values.get("resample", _RESAMPLE)
    if isinstance(resample, bool) or not isinstance(resample, int) or not 0 <= resample <= 5:
        fields.fail("resample", "is not a number from 0 to 5")
    normalises = fields.flag("do_normalize") is not False
    return ImageProcessing(
        image_size=image_size,
        longest_edge=longest_edge,
        resizes=fields.flag("do_resize") is not False,
        splits=splits,
        resample=resample,
        rescale_factor=fields.number("rescale_factor", _RESCALE_FACTOR)
        if fields.flag("do_rescale") is not False
        else 1,
        mean=_colours(fields, "image_mean", _HALF) if normalises else (0.0,) * _COLOURS,
        deviation=_colours(fields, "image_std", _HALF, above_zero=True) if normalises else (1.0,) * _COLOURS,
        tokens_per_tile=tokens_per_tile,
        image_token_id=image_token_ids[0],
    )


def _processor_fields(checkpoint: Checkpoint) -> Fields:
    """Newer checkpoints keep the image processor inside the whole processor's file."""
    own = checkpoint.optional_object(names.PREPROCESSOR_FILE)
    if own:
        return Fields(checkpoint.directory / names.PREPROCESSOR_FILE, own)
    path = checkpoint.directory / names.PROCESSOR_FILE
    nested = Fields(path, checkpoint.optional_object(names.PROCESSOR_FILE)).mapping("image_processor")
    if nested:
        return Fields(path, nested, prefix="image_processor.")
    raise CheckpointError(f"{checkpoint.directory}: no {names.PREPROCESSOR_FILE}, which says how images are made ready")


def _check_declared_tokens(checkpoint: Checkpoint, tokens_per_tile: int) -> None:
    fields = Fields(checkpoint.directory / names.PROCESSOR_FILE, checkpoint.optional_object(names.PROCESSOR_FILE))
    declared = fields.count("image_seq_len", tokens_per_tile)
    if declared != tokens_per_tile:
        fields.fail("image_seq_len", f"is {declared}, and the vision tower makes {tokens_per_tile} rows of a tile")


def _edge(fields: Fields, name: str, default: int) -> int:
    inner = Fields(fields.path, fields.mapping(name), prefix=f"{name}.")
    return inner.count("longest_edge", default)


def _colours(fields: Fields, name: str, default: float, *, above_zero: bool = False) -> tuple[float, ...]:
    value = fields.values.get(name)
    if value is None:
        return (default,) * _COLOURS
    numbers = value if isinstance(value, list) else [value] * _COLOURS
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) < 1e6:
            fields.fail(name, "is not a list of numbers")
        if above_zero and number < 1e-6:
            fields.fail(name, "is not above 0")
    if len(numbers) != _COLOURS:
        fields.fail(name, f"does not have {_COLOURS} numbers")
    return tuple(float(number) for number in numbers)
