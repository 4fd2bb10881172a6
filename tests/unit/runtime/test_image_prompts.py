"""Where rows of images stand in a prompt: the text of the published processor, and bounds on what one may ask for."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.models.pictures import noise

from edgellm.engines.visual_part import ImageProcessing
from edgellm.errors import CheckpointError, RequestError
from edgellm.runtime.vision import image_prompts
from edgellm.runtime.vision.image_prompts import ImagePrompts

PROCESSING = ImageProcessing(
    image_size=8,
    longest_edge=16,
    resizes=True,
    splits=True,
    resample=1,
    rescale_factor=1 / 255,
    mean=(0.5, 0.5, 0.5),
    deviation=(0.5, 0.5, 0.5),
    tokens_per_tile=2,
    image_token_id=1,
)
WORDS = ["<fake_token_around_image>", "<image>", "<global-img>", "<row_1_col_1>", "<row_1_col_2>", "<row_2_col_1>"]
WORDS += ["<row_2_col_2>", "\n", "\n\n"]


def tokenise(text: str) -> list[int]:
    return [WORDS.index(word) for word in re.findall(r"<[^>]*>|\n+", text)]


def written(ids: list[int]) -> str:
    """The prompt as text, a letter for every row of an image."""
    return "".join(WORDS[token_id] if token_id >= 0 else "ABC"[-1 - token_id] for token_id in ids)


@pytest.fixture
def prompts() -> ImagePrompts:
    return ImagePrompts(PROCESSING, tokenise)


def test_an_image_that_is_cut(prompts: ImagePrompts) -> None:
    ids = prompts.expand([7, 1, 7], [(10, 10, True)])
    assert written(ids) == (
        "\n<fake_token_around_image><row_1_col_1>AA<fake_token_around_image><row_1_col_2>AA\n"
        "<fake_token_around_image><row_2_col_1>AA<fake_token_around_image><row_2_col_2>AA\n\n"
        "<fake_token_around_image><global-img>AA<fake_token_around_image>\n"
    )


def test_several_images_in_their_order(prompts: ImagePrompts) -> None:
    ids = prompts.expand([1, 1, 7, 1], [(8, 8, False), (4, 16, True), (1, 8, False)])
    assert written(ids) == (
        "<fake_token_around_image><global-img>AA<fake_token_around_image>"
        "<fake_token_around_image><row_1_col_1>BB<fake_token_around_image><row_1_col_2>BB\n\n"
        "<fake_token_around_image><global-img>BB<fake_token_around_image>\n"
        "<fake_token_around_image><global-img>CC<fake_token_around_image>"
    )


def test_a_prompt_without_images_stays(prompts: ImagePrompts) -> None:
    assert prompts.expand([7, 0, 7], []) == [7, 0, 7]


@pytest.mark.parametrize(("ids", "images"), [([1], 0), ([7], 1), ([1, 1], 1), ([1], 2)])
def test_places_and_images_must_be_as_many(ids: list[int], images: int, prompts: ImagePrompts) -> None:
    with pytest.raises(RequestError, match=f"places for {ids.count(1)} images, and {images} images came") as raised:
        prompts.expand(ids, [(8, 8, True)] * images)
    assert raised.value.param == "messages"


def test_requests_are_bounded(monkeypatch: pytest.MonkeyPatch, prompts: ImagePrompts) -> None:
    with pytest.raises(RequestError, match="takes at most 64 images, and has 65"):
        prompts.expand([1] * 65, [(8, 8, True)] * 65)
    monkeypatch.setattr(image_prompts, "IMAGE_TOKENS_PER_REQUEST_MAX", 19)
    with pytest.raises(RequestError, match="make 20 tokens; the most is 19"):
        prompts.expand([1, 1], [(10, 10, True)] * 2)


def test_a_digest_tells_pixels_sizes_and_processing_apart(prompts: ImagePrompts) -> None:
    image = noise(6, 4)
    other = image.copy()
    other[5, 3, 2] ^= 1
    digests = {
        prompts.digest(image, True),
        prompts.digest(image, False),
        prompts.digest(other, True),
        prompts.digest(image.reshape(4, 6, 3), True),
        ImagePrompts(replace(PROCESSING, longest_edge=8), tokenise).digest(image, True),
    }
    assert len(digests) == 5
    assert prompts.digest(image.copy(), True) == prompts.digest(image, True)


def test_a_tokenizer_without_the_marks_is_refused() -> None:
    with pytest.raises(CheckpointError, match="token <fake_token_around_image> is missing"):
        ImagePrompts(PROCESSING, lambda text: [5, 6])
    with pytest.raises(CheckpointError, match="token <image> does not have the id 2"):
        ImagePrompts(replace(PROCESSING, image_token_id=2), tokenise)
