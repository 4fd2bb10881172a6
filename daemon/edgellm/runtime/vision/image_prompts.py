"""ImagePrompts: where the rows of images stand in a prompt, and what the native runtime asks about them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from edgellm.engines.visual_part import AROUND_IMAGE, GLOBAL_IMAGE, IMAGE_PLACEHOLDER, ImageProcessing
from edgellm.errors import CheckpointError, RequestError
from edgellm.runtime.vision.image_tiles import Pixels, TileGrid, grid_of, tiles_of

Tokenise = Callable[[str], Sequence[int]]
"""Token ids of the template's own text, in which control tokens are tokens."""

IMAGES_PER_REQUEST_MAX = 64
IMAGE_TOKENS_PER_REQUEST_MAX = 131_072
"""Bounds what a request can ask for before the model's own lengths are looked at."""


class ImagePrompts:
    """The ``image_processor`` of the native runtime. Thread-safe."""

    def __init__(self, processing: ImageProcessing, tokenise: Tokenise) -> None:
        """Raises CheckpointError where a token that marks images is no token."""
        self._processing = processing
        self._tokenise = tokenise
        for text in (AROUND_IMAGE, IMAGE_PLACEHOLDER):
            if len(tokenise(text)) != 1:
                raise CheckpointError(f"token {text} is missing from the tokenizer")
        if list(tokenise(IMAGE_PLACEHOLDER)) != [processing.image_token_id]:
            raise CheckpointError(f"token {IMAGE_PLACEHOLDER} does not have the id {processing.image_token_id}")
        self._around = list(tokenise(AROUND_IMAGE))
        self._global = list(tokenise(GLOBAL_IMAGE))
        self._names = hashlib.sha256(repr(processing).encode()).digest()

    @classmethod
    def of_bundle(cls, directory: Path, tokenise: Tokenise) -> ImagePrompts | None:
        """None for a bundle of text alone."""
        processing = ImageProcessing.of_bundle(directory)
        if processing is None:
            return None
        try:
            return cls(processing, tokenise)
        except CheckpointError as error:
            raise CheckpointError(f"{directory}: {error}") from None

    def expand(self, token_ids: Sequence[int], sizes: Sequence[tuple[int, int, bool]]) -> list[int]:
        """``token_ids`` with the rows of each image in the place of its token: -1 - index for one of image ``index``.

        Raises RequestError, with both counts where tokens and images differ.
        """
        placeholder = self._processing.image_token_id
        placeholders = sum(token_id == placeholder for token_id in token_ids)
        if placeholders != len(sizes):
            raise RequestError(
                f"the prompt has places for {placeholders} images, and {len(sizes)} images came with it",
                param="messages",
            )
        if not sizes:
            return list(token_ids)
        if len(sizes) > IMAGES_PER_REQUEST_MAX:
            raise RequestError(
                f"a request takes at most {IMAGES_PER_REQUEST_MAX} images, and has {len(sizes)}", param="messages"
            )
        grids = [grid_of(height, width, self._processing, resize=resize) for height, width, resize in sizes]
        image_tokens = sum(grid.tile_count for grid in grids) * self._processing.tokens_per_tile
        if image_tokens > IMAGE_TOKENS_PER_REQUEST_MAX:
            raise RequestError(
                f"the images of this request make {image_tokens} tokens; the most is {IMAGE_TOKENS_PER_REQUEST_MAX}",
                param="messages",
            )
        expanded: list[int] = []
        index = 0
        for token_id in token_ids:
            if token_id != placeholder:
                expanded.append(token_id)
                continue
            expanded += self._placed(grids[index], -1 - index)
            index += 1
        return expanded

    def digest(self, pixels: Pixels, do_resize: bool) -> bytes:
        """Tells images apart by their pixels and by what is done with them."""
        digest = hashlib.sha256(self._names)
        digest.update(f"{pixels.shape} {do_resize}".encode())
        digest.update(pixels.data)
        return digest.digest()

    def tiles(self, pixels: Pixels, do_resize: bool) -> Pixels:
        return tiles_of(pixels, self._processing, resize=do_resize)

    def _placed(self, grid: TileGrid, row: int) -> list[int]:
        """One image as the family writes it: each tile after its name, each line of tiles on a line of its own."""
        rows = [row] * self._processing.tokens_per_tile
        if not grid.rows:
            return [*self._around, *self._global, *rows, *self._around]
        ids: list[int] = []
        for line in range(grid.rows):
            for column in range(grid.columns):
                ids += [*self._around, *self._tokenise(f"<row_{line + 1}_col_{column + 1}>"), *rows]
            # The last line's end and the empty line after it stand side by side, and are one text.
            ids += self._tokenise("\n" if line + 1 < grid.rows else "\n\n")
        return [*ids, *self._around, *self._global, *rows, *self._around]
