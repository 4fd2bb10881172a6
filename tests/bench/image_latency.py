"""Where the time of an image goes on its way to the first token: decoding, the tower, the prompt.

The model has the shape of SmolVLM-256M-Instruct and random weights: its words mean nothing, not its cost. One token is
generated, so that what is measured is the way to it. The second time an image is seen, with another text before it, its
encoding is kept and its prompt is not: the difference is the tower's. Beside it NumPy's BLAS multiplies matrices
of its sizes, in 32 bits and with as many threads, without attention's softmax, norms and activations.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tests.bench.http_comparison import Finding
from tests.bench.speech_measures import finding
from tests.bench.statistics_of_rounds import ratio_by_round
from tests.models.tiny_checkpoints import TinyModel
from tests.models.tiny_vision import VISION_VARIANTS, TinyVisionModel, write_vision_checkpoint

from edgellm.media.media_decoder import MediaDecoder
from edgellm.media.media_file import MediaFile
from edgellm.media.media_input import MediaInput
from edgellm.runtime.llm import LLM
from edgellm.runtime.sampling_params import SamplingParams

VOCABULARY_TOKENS = 49_280
IMAGE_WIDTH_PIXELS = 1024
IMAGE_HEIGHT_PIXELS = 768
MOST_ROUNDS = 3  # of an image that is cut into many tiles
ONE_TOKEN = SamplingParams(max_tokens=1, ignore_eos=True)


def _smolvlm_256m(longest_edge: int) -> TinyVisionModel:
    """https://huggingface.co/HuggingFaceTB/SmolVLM-256M-Instruct/blob/main/config.json"""
    tiny = VISION_VARIANTS["smolvlm"]
    decoder = TinyModel(
        tokenizer=tiny.decoder.tokenizer,
        hidden_size=576,
        intermediate_size=1536,
        layer_count=30,
        head_count=9,
        kv_head_count=3,
        head_size=64,
        context_length=8192,
        tied=False,
        dtype="f16",
    )
    return TinyVisionModel(
        decoder=replace(decoder, padding_rows=VOCABULARY_TOKENS - decoder.token_count),
        image_size=512,
        patch_size=16,
        hidden_size=768,
        intermediate_size=3072,
        layer_count=12,
        head_count=12,
        scale_factor=4,
        longest_edge=longest_edge,
    )


def _jpeg(seed: int) -> bytes:
    coarse = np.random.default_rng(seed).integers(0, 256, (IMAGE_HEIGHT_PIXELS // 16, IMAGE_WIDTH_PIXELS // 16, 3))
    image = Image.fromarray(coarse.astype(np.uint8)).resize((IMAGE_WIDTH_PIXELS, IMAGE_HEIGHT_PIXELS))
    file = io.BytesIO()
    image.save(file, "jpeg")
    return file.getvalue()


def _tower_matmul_seconds(model: TinyVisionModel, tiles: int) -> float:
    """Of the matrices alone, by NumPy."""
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        return random.standard_normal((rows, columns), np.float32)

    patches, hidden = model.patch_count, model.hidden_size
    head_size = hidden // model.head_count
    pairs = [
        *[(matrix(patches, hidden), matrix(hidden, hidden), 4 * model.layer_count)],
        *[(matrix(patches, hidden), matrix(hidden, model.intermediate_size), model.layer_count)],
        *[(matrix(patches, model.intermediate_size), matrix(model.intermediate_size, hidden), model.layer_count)],
        *[(matrix(patches, head_size), matrix(head_size, patches), model.layer_count * model.head_count)],
        *[(matrix(patches, patches), matrix(patches, head_size), model.layer_count * model.head_count)],
    ]
    begun = time.monotonic()
    for left, right, times in pairs:
        for _ in range(times):
            left @ right
    return (time.monotonic() - begun) * tiles


class ImageTimes:
    """Seconds of one image in a model: it is seen, and seen again after another text."""

    def __init__(self, llm: LLM, decoder: MediaDecoder) -> None:
        self._llm = llm
        self._decoder = decoder
        self._texts = iter(range(1_000_000))

    def first_token(self, jpeg: bytes) -> float:
        url = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
        content = [
            {"type": "text", "text": f"{next(self._texts)} is the number of this image."},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        begun = time.monotonic()
        self._llm.generate([[{"role": "user", "content": content}]], ONE_TOKEN)
        return time.monotonic() - begun

    def decoding(self, jpeg: bytes) -> float:
        file = MediaFile.empty()
        file.append(jpeg)
        begun = time.monotonic()
        self._decoder.job([MediaInput("image", "image", (file,))]).result()
        return time.monotonic() - begun


@contextmanager
def _image_times(folder: Path, model: TinyVisionModel) -> Iterator[ImageTimes]:
    checkpoint = write_vision_checkpoint(folder / f"vision-{model.longest_edge}", model)
    decoder = MediaDecoder()
    llm = LLM(str(checkpoint), cache_dir=folder / "cache")
    try:
        yield ImageTimes(llm, decoder)
    finally:
        llm.close()
        decoder.close()


def measure_images(folder: Path, rounds: int) -> list[Finding]:
    findings = []
    for tiles, longest_edge in ((1, 512), (13, 2048)):
        model = _smolvlm_256m(longest_edge)
        name = "1 tile" if tiles == 1 else f"{tiles} tiles"
        decoding, tower, prompt, limit = [], [], [], []
        with _image_times(folder, model) as times:
            times.decoding(_jpeg(0))
            times.first_token(_jpeg(0))
            for index in range(1, 1 + (rounds if tiles == 1 else min(rounds, MOST_ROUNDS))):
                jpeg = _jpeg(index)
                first, again = times.first_token(jpeg), times.first_token(jpeg)
                decoding.append(times.decoding(jpeg))
                tower.append(first - again)
                prompt.append(again - decoding[-1])
                limit.append(_tower_matmul_seconds(model, tiles))
        findings += [
            finding(f"{name}: decoding", [1000 * seconds for seconds in decoding], "ms", 0),
            finding(f"{name}: tower", tower, "s", 2),
            finding(f"{name}: prompt", prompt, "s", 2),
            Finding(f"{name}: tower over its matrices in NumPy", ratio_by_round(tower, limit), "", 2, "", None),
        ]
    return findings
