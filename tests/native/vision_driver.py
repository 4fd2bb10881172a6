"""Drives edgellm._native with images: a vision bundle, its prompts as text, and pictures as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.models.pictures import Pixels, png_of
from tests.native.runtime_driver import (
    Answer,
    Ask,
    NativeEngine,
    Submitted,
    cache_config,
    native_module,
    runtime_options,
)

from edgellm.runtime.bundle_codec import bundle_codec
from edgellm.runtime.vision.image_prompts import ImagePrompts


@dataclass(frozen=True, slots=True)
class VisionAsk:
    """``text`` has ``<image>`` where each image is."""

    text: str
    images: Sequence[Pixels] = ()
    max_tokens: int = 6
    logprobs: int = 4
    seed: int | None = None
    temperature: float = 0.0
    repetition_penalty: float = 1.0
    cache_domain: str = ""
    do_resize: bool = True
    token_ids: Sequence[int] | None = None

    def native(self, directory: Path) -> Any:
        ids = self.token_ids if self.token_ids is not None else bundle_codec(directory).template_ids(self.text)
        request = Ask(
            ids,
            self.max_tokens,
            temperature=self.temperature,
            seed=self.seed,
            logprobs=self.logprobs,
            extensions={
                "ignore_eos": True,
                "repetition_penalty": self.repetition_penalty,
                "cache_domain": self.cache_domain,
            },
        ).native()
        request.requests[0].image_buffers = [loaded(image, self.do_resize) for image in self.images]
        return request


def loaded(image: Pixels, do_resize: bool = True) -> Any:
    value = native_module().load_image_from_bytes(png_of(image))
    value.do_resize = do_resize
    return value


@cache
def image_prompts(directory: Path) -> ImagePrompts | None:
    return ImagePrompts.of_bundle(directory, bundle_codec(directory).template_ids)


def vision_options(directory: Path, **options: Any) -> Any:
    return runtime_options(image_processor=image_prompts(directory), **{"threads": 2, "kv_type": "f32", **options})


class VisionEngine(NativeEngine):
    """RequestEngine over a vision bundle."""

    def __init__(self, directory: Path, *, sequences: int = 4, caches_context: bool = False, **options: Any) -> None:
        self.directory = directory
        self.native = native_module().RequestEngine(
            str(directory),
            str(directory),
            context_cache_config=cache_config(enabled=caches_context),
            max_batch_size=sequences,
            options=vision_options(directory, **options),
        )

    def send(self, ask: VisionAsk) -> Submitted:
        return Submitted(self.native.submit(ask.native(self.directory)))

    def see(self, ask: VisionAsk) -> Answer:
        return self.send(ask).answer()
