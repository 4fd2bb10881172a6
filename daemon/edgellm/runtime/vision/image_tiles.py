"""Image tiles: how the Idefics3 family cuts an image into squares of the vision tower's size.

The image is scaled until its longest edge has a length that the checkpoint says, then to whole numbers of tiles in both
directions, and cut; the whole image, squeezed into one more tile, comes last. Sizes are rounded as the family's
published processor rounds them, so that a model sees what it was trained with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.engines.visual_part import TILES_PER_IMAGE_MAX, ImageProcessing
from edgellm.errors import RequestError

Pixels = npt.NDArray[np.uint8]

EDGE_PIXELS_MAX = 4096
"""The published processor scales nothing beyond it."""


@dataclass(frozen=True, slots=True)
class TileGrid:
    """``rows`` and ``columns`` are 0 for an image that is one tile as a whole."""

    rows: int = 0
    columns: int = 0

    @property
    def tile_count(self) -> int:
        return self.rows * self.columns + 1


def grid_of(height: int, width: int, processing: ImageProcessing, *, resize: bool = True) -> TileGrid:
    """The tiles of an image of that size. Raises RequestError for more than TILES_PER_IMAGE_MAX."""
    if not processing.splits:
        return TileGrid()
    tile = processing.image_size
    cut_height, cut_width = _cut_size(*_scaled_size(height, width, processing, resize=resize), tile)
    if cut_height == tile and cut_width == tile:
        return TileGrid()
    grid = TileGrid(cut_height // tile, cut_width // tile)
    if grid.tile_count > TILES_PER_IMAGE_MAX:
        raise RequestError(
            f"an image of {width} x {height} pixels makes {grid.tile_count} tiles; the most is {TILES_PER_IMAGE_MAX}: "
            "send a smaller one",
            param="messages",
        )
    return grid


def tiles_of(pixels: Pixels, processing: ImageProcessing, *, resize: bool = True) -> Pixels:
    """The tiles of an image, (tiles, height, width, 3): by rows from the upper left, the whole image last."""
    from PIL import Image

    filter_kind = Image.Resampling(processing.resample)

    def scaled(image: Image.Image, height: int, width: int) -> Image.Image:
        return image if image.size == (width, height) else image.resize((width, height), filter_kind)

    height, width, _ = pixels.shape
    tile = processing.image_size
    grid = grid_of(height, width, processing, resize=resize)
    image = scaled(Image.fromarray(pixels), *_scaled_size(height, width, processing, resize=resize))
    if processing.splits:
        image = scaled(image, *_cut_size(image.height, image.width, tile))
    squares = np.empty((grid.tile_count, tile, tile, 3), np.uint8)
    if grid.rows:
        whole = np.asarray(image)
        cut = whole.reshape(grid.rows, tile, grid.columns, tile, 3).swapaxes(1, 2)
        squares[:-1] = cut.reshape(-1, tile, tile, 3)
    squares[-1] = np.asarray(scaled(image, tile, tile))
    return squares


def _scaled_size(height: int, width: int, processing: ImageProcessing, *, resize: bool) -> tuple[int, int]:
    """(height, width) after the longest edge got its length."""
    if not (resize and processing.resizes):
        return height, width
    height, width = _longest_edge(height, width, processing.longest_edge)
    if max(height, width) > EDGE_PIXELS_MAX:
        height, width = _longest_edge(height, width, EDGE_PIXELS_MAX, to_even=False)
    return height, width


def _longest_edge(height: int, width: int, edge: int, *, to_even: bool = True) -> tuple[int, int]:
    """The shorter edge follows in proportion, rounded down, then up to an even number."""
    ratio = width / height
    if width >= height:
        shorter = int(edge / ratio)
        return max(1, shorter + (shorter % 2 if to_even else 0)), edge
    shorter = int(edge * ratio)
    return edge, max(1, shorter + (shorter % 2 if to_even else 0))


def _cut_size(height: int, width: int, tile: int) -> tuple[int, int]:
    """(height, width) as whole tiles: the longer edge is rounded up, and the shorter one after it."""
    ratio = width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        height = int(width / ratio)
        return max(1, math.ceil(height / tile)) * tile, width
    height = math.ceil(height / tile) * tile
    width = int(height * ratio)
    return height, max(1, math.ceil(width / tile)) * tile
