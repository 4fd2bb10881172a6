"""Tiles are those of the family's published processor, pixel by pixel, and so is the text around them.

Recorded by tests/reference/published_images.py.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference.published_images import (
    GRIDS,
    ROWS_PER_TILE,
    SETTINGS,
    SIZES,
    Settings,
    digest,
    picture,
    sample_places,
)

from edgellm.engines.visual_part import ImageProcessing
from edgellm.runtime.vision.image_prompts import ImagePrompts
from edgellm.runtime.vision.image_tiles import TileGrid, grid_of, tiles_of

FILE = Path(__file__).parents[2] / "reference" / "published_images.json"
TEXTS: list[str] = json.loads(FILE.read_text())["texts"]
RECORDED: dict[str, list[dict[str, Any]]] = json.loads(FILE.read_text())["processors"]
# Values of the tower's input lie between -1 and 1: that is what single precision leaves.
LARGEST_DIFFERENCE = 1e-7
MIDDLE = DEVIATION = 0.5


def processing_of(settings: Settings) -> ImageProcessing:
    return ImageProcessing(
        image_size=settings.tile_size,
        longest_edge=settings.longest_edge,
        resizes=True,
        splits=settings.splits,
        resample=settings.resample,
        rescale_factor=1 / 255,
        mean=(MIDDLE,) * 3,
        deviation=(DEVIATION,) * 3,
        tokens_per_tile=64,
        image_token_id=1,
    )


def test_every_size_was_recorded_for_every_processor() -> None:
    assert set(RECORDED) == set(SETTINGS)
    for entries in RECORDED.values():
        assert [tuple(entry["size"]) for entry in entries] == list(SIZES)


@pytest.mark.parametrize("name", sorted(SETTINGS))
@pytest.mark.parametrize("size", SIZES)
def test_tiles_are_those_of_the_published_processor(name: str, size: tuple[int, int]) -> None:
    settings = SETTINGS[name]
    (recorded,) = [entry for entry in RECORDED[name] if tuple(entry["size"]) == size]
    processing = processing_of(settings)
    assert grid_of(*size, processing) == TileGrid(recorded["rows"], recorded["columns"])
    tiles = tiles_of(picture(*size), processing)
    assert len(tiles) == recorded["tiles"]
    assert digest(tiles) == recorded["sha256"], "as levels from 0 to 255"
    values = (tiles[tuple(sample_places(len(tiles), settings.tile_size).T)] * processing.rescale_factor) - MIDDLE
    difference = np.abs(values / DEVIATION - np.array(recorded["samples"]))
    assert difference.max() <= LARGEST_DIFFERENCE


@pytest.mark.parametrize(("grid", "text"), list(zip(GRIDS, TEXTS, strict=True)))
def test_the_text_around_tiles_is_that_of_the_published_processor(grid: tuple[int, int], text: str) -> None:
    words = ["<image>"]

    def tokenise(written: str) -> list[int]:
        found = re.findall(r"<[^>]*>|\n+", written)
        words.extend(word for word in found if word not in words)
        return [words.index(word) for word in found]

    processing = replace(
        processing_of(SETTINGS["smolvlm"]), tokens_per_tile=ROWS_PER_TILE, image_size=8, image_token_id=0
    )
    prompts = ImagePrompts(processing, tokenise)
    size = (8 * (grid[0] or 1), 8 * (grid[1] or 1))
    ids = prompts.expand([0], [(*size, False)])
    assert "".join(words[max(0, token_id)] for token_id in ids) == text
