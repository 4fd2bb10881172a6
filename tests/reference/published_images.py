"""What the published processors of the Idefics3 family make of images, recorded for tests that run without them.

``python -m tests.reference.published_images > tests/reference/published_images.json`` in an environment of its own,
with the packages transformers and Pillow: nothing of the project is needed there, and nothing of them here.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.models.pictures import Pixels, noise

SIZES = (
    *((480, 640), (640, 480), (512, 512), (1080, 1920), (364, 364), (300, 1000), (251, 1000)),
    *((97, 61), (33, 500), (700, 40), (16, 16), (1, 3)),
)
"""Height and width in pixels."""
SAMPLES_PER_TILE = 2
GRIDS = ((0, 0), (1, 4), (2, 2), (3, 4), (4, 4))
"""Rows and columns of tiles."""
ROWS_PER_TILE = 2


@dataclass(frozen=True)
class Settings:
    """As a checkpoint's preprocessor_config.json has them; lengths are pixels."""

    family: str
    longest_edge: int
    tile_size: int
    splits: bool = True
    resample: int = 1


SETTINGS = {
    "smolvlm": Settings("smolvlm", 2048, 512),
    "smolvlm-whole": Settings("smolvlm", 2048, 512, splits=False),
    "smolvlm-bicubic": Settings("smolvlm", 1536, 384, resample=3),
    "idefics3": Settings("idefics3", 1456, 364),
}


def picture(height: int, width: int) -> Pixels:
    """Slopes of each colour under noise, in whole numbers: the same on every machine."""
    rows, columns = np.mgrid[0:height, 0:width]
    slopes = np.stack([abs((rows * (5 + c) + columns * (9 - 2 * c)) % 384 - 192) for c in range(3)], axis=-1)
    grain = noise(height, width, seed=height * 10_007 + width).astype(np.int64)
    mixed: Pixels = (slopes + grain // 5).astype(np.uint8)
    return mixed


def digest(tiles: NDArray[np.uint8]) -> str:
    """Of tiles of shape (tiles, height, width, 3)."""
    return hashlib.sha256(np.ascontiguousarray(tiles).tobytes()).hexdigest()


def sample_places(tile_count: int, tile_size: int) -> NDArray[np.intp]:
    """Some pixels of every tile: tile, row, column and colour of each."""
    random = np.random.default_rng(tile_count)
    tiles = np.repeat(np.arange(tile_count), SAMPLES_PER_TILE)
    inside = random.integers(0, tile_size, (len(tiles), 2))
    return np.column_stack([tiles, inside, random.integers(0, 3, len(tiles))])


def _processor(settings: Settings) -> Any:
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

    kind = {"smolvlm": SmolVLMImageProcessorPil, "idefics3": Idefics3ImageProcessorPil}[settings.family]
    return kind(
        do_convert_rgb=True,
        do_image_splitting=settings.splits,
        do_normalize=True,
        do_pad=True,
        do_rescale=True,
        do_resize=True,
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
        max_image_size={"longest_edge": settings.tile_size},
        resample=settings.resample,
        rescale_factor=1 / 255,
        size={"longest_edge": settings.longest_edge},
    )


def _recorded(settings: Settings, height: int, width: int) -> dict[str, Any]:
    from PIL import Image

    image = Image.fromarray(picture(height, width))
    made = _processor(settings)(images=[[image]], return_row_col_info=True, return_tensors="np")
    values = np.asarray(made["pixel_values"])[0].transpose(0, 2, 3, 1)
    rows, columns = int(made["rows"][0][0]), int(made["cols"][0][0])
    levels = (values * 0.5 + 0.5) * 255
    tiles = levels.round().astype(np.uint8)
    places = sample_places(len(tiles), settings.tile_size)
    return {
        "size": [height, width],
        "rows": rows,
        "columns": columns,
        "tiles": len(tiles),
        "sha256": digest(tiles),
        "samples": [round(float(value), 9) for value in values[tuple(places.T)]],
    }


def main() -> None:
    import PIL
    import transformers
    from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

    texts = [
        get_image_prompt_string(*grid, ROWS_PER_TILE, "<fake_token_around_image>", "<image>", "<global-img>")
        for grid in GRIDS
    ]
    recorded = {name: [_recorded(each, *size) for size in SIZES] for name, each in SETTINGS.items()}
    versions = {"transformers": transformers.__version__, "pillow": PIL.__version__}
    sys.stdout.write(f'{{"made_with": {json.dumps(versions)},\n "texts": {json.dumps(texts)},\n "processors": {{')
    for number, (name, entries) in enumerate(recorded.items()):
        lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
        sys.stdout.write(f"{',' if number else ''}\n {json.dumps(name)}: [\n{lines}]")
    sys.stdout.write("}}\n")


if __name__ == "__main__":
    main()
