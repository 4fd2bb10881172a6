"""How images are cut: sizes that the family's published processor gives, pixels that stay where they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.models.pictures import noise

from edgellm.engines.visual_part import TILES_PER_IMAGE_MAX, ImageProcessing
from edgellm.errors import RequestError
from edgellm.runtime.vision.image_tiles import TileGrid, grid_of, tiles_of

SMOLVLM = ImageProcessing(
    image_size=512,
    longest_edge=2048,
    resizes=True,
    splits=True,
    resample=1,
    rescale_factor=1 / 255,
    mean=(0.5, 0.5, 0.5),
    deviation=(0.5, 0.5, 0.5),
    tokens_per_tile=64,
    image_token_id=49190,
)
IDEFICS3 = replace(SMOLVLM, image_size=364, longest_edge=1456, tokens_per_tile=169)


@pytest.mark.parametrize(
    ("processing", "height", "width", "grid"),
    [
        # By hand: 640 x 480 becomes 2048 x 1536, four columns and three rows of 512.
        (SMOLVLM, 480, 640, TileGrid(3, 4)),
        (SMOLVLM, 640, 480, TileGrid(4, 3)),
        (SMOLVLM, 512, 512, TileGrid(4, 4)),
        (SMOLVLM, 1, 1, TileGrid(4, 4)),
        # 16:9 becomes 2048 x 1152: rounded up to three rows.
        (SMOLVLM, 1080, 1920, TileGrid(3, 4)),
        (SMOLVLM, 1, 10_000, TileGrid(1, 4)),
        (SMOLVLM, 10_000, 1, TileGrid(4, 1)),
        (IDEFICS3, 480, 640, TileGrid(3, 4)),
        # 1456 x 1456 * 300 / 1000 = 436: two rows of 364.
        (IDEFICS3, 300, 1000, TileGrid(2, 4)),
        # 1456 / 1000 * 251 = 365.456, up to 366: two rows, where 250 gives 364 and one.
        (IDEFICS3, 251, 1000, TileGrid(2, 4)),
        (IDEFICS3, 250, 1000, TileGrid(1, 4)),
        (replace(SMOLVLM, splits=False), 480, 640, TileGrid()),
        (replace(SMOLVLM, longest_edge=512), 100, 512, TileGrid()),
    ],
)
def test_grids(processing: ImageProcessing, height: int, width: int, grid: TileGrid) -> None:
    assert grid_of(height, width, processing) == grid
    assert grid.tile_count == (grid.rows * grid.columns or 0) + 1


def test_an_image_keeps_its_size_where_it_is_asked_for() -> None:
    assert grid_of(512, 512, SMOLVLM, resize=False) == TileGrid()
    assert grid_of(300, 513, SMOLVLM, resize=False) == TileGrid(2, 2)
    assert grid_of(300, 513, replace(SMOLVLM, resizes=False)) == TileGrid(2, 2)
    most = grid_of(4096, 4096, SMOLVLM, resize=False)
    assert most.tile_count == TILES_PER_IMAGE_MAX
    with pytest.raises(RequestError, match="4097 x 4096 pixels makes 82 tiles; the most is 65"):
        grid_of(4096, 4097, SMOLVLM, resize=False)


def test_tiles_are_the_image_cut_and_the_whole_of_it() -> None:
    """An image of whole tiles is not resampled: every pixel is found where it was."""
    small = replace(SMOLVLM, image_size=8, longest_edge=24)
    image = noise(16, 24)
    tiles = tiles_of(image, small)
    assert tiles.shape == (7, 8, 8, 3)
    for row in range(2):
        for column in range(3):
            expected = image[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8]
            np.testing.assert_array_equal(tiles[row * 3 + column], expected)
    # Brightness of the whole survives; a picture that was cut wrongly would not average to it.
    assert abs(tiles[-1].mean() - image.mean()) < 3


def test_a_flat_image_stays_flat() -> None:
    image = np.full((33, 71, 3), (10, 120, 250), np.uint8)
    for processing in (SMOLVLM, replace(SMOLVLM, splits=False)):
        tiles = tiles_of(image, processing)
        assert len(tiles) == grid_of(33, 71, processing).tile_count
        assert (tiles == np.array([10, 120, 250], np.uint8)).all()


def test_an_image_of_one_tile_is_that_tile() -> None:
    image = noise(512, 512)
    np.testing.assert_array_equal(tiles_of(image, SMOLVLM, resize=False), image[None])
