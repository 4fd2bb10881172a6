"""Repeats one action on the native module and prints by how many bytes the process grew over the second half.

Also holds references, threads and open files against their count before: any that stayed is an error.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.models.pictures import noise, png_of
from tests.native.runtime_driver import Ask, native_module, runtime_options
from tests.native.vision_driver import VisionAsk, VisionEngine

from edgellm.errors import RequestError

module = native_module()
PROMPT = [5, 6, 7, 8]
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MESSAGE_BYTES = 2000
PICTURE = png_of(np.arange(64 * 48 * 3, dtype=np.uint8).reshape(64, 48, 3))


def encode(_request: Any, _index: int) -> list[int]:
    return PROMPT


def _conversation() -> list[Any]:
    return [module.create_text_message("user", "x" * MESSAGE_BYTES) for _ in range(4)]


def requests(_bundle: str) -> None:
    batch = module.create_generation_request([_conversation(), _conversation()], logit_bias={1: 1.0})
    batch.stream_channels = [module.StreamChannel.create() for _ in batch.requests]
    batch.tools = [module.ToolDefinition()] * 4
    for item in batch.requests:
        item.extensions.token_ids = list(range(500))
        assert item.messages[0].contents[0].content


def replaced_references(_bundle: str) -> None:
    batch = module.create_generation_request([_conversation()])
    for _ in range(4):
        held = batch.requests[0].messages[0].contents[0]
        batch.requests = [module.Request(_conversation())]
        assert len(held.content) == MESSAGE_BYTES
    item = batch.requests[0]
    for _ in range(4):
        item.guided_decoding = module.GuidedDecodingParams(module.GuideType.REGEX, "x" * MESSAGE_BYTES)
        guide = item.guided_decoding
        item.guided_decoding = None
        assert len(guide.guide) == MESSAGE_BYTES


def channels(_bundle: str) -> None:
    for channel in (module.StreamChannel.create(), module.AudioStreamChannel()):
        channel.try_pop()
        channel.cancel()
        channel.wait_pop(1000)


def media(_bundle: str) -> None:
    image = module.load_image_from_bytes(PICTURE)
    video = module.load_video_from_array(np.zeros((2, 16, 16, 3), np.uint8))
    request = module.Request()
    request.image_buffers = [image, video]
    assert request.image_buffers[0].pixels.nbytes == image.pixels.nbytes
    for damaged in (PICTURE[:-30], b"x" * MESSAGE_BYTES):
        with contextlib.suppress(RuntimeError):
            module.load_image_from_bytes(damaged)


def guides(_bundle: str) -> None:
    schema = '{"properties": {"a": {"enum": ["' + "x" * MESSAGE_BYTES + '"]}}, "contains": {}}'
    valid, _ = module.validate_guided_decoding_params(module.GuidedDecodingParams(module.GuideType.JSON_SCHEMA, schema))
    assert not valid


def refusals(_bundle: str) -> None:
    for action in (
        lambda: module.load_image_from_path("x" * MESSAGE_BYTES),
        lambda: module.LLMRuntime("/nonexistent"),
        lambda: setattr(module.Request(), "stop_strings", ["x" * MESSAGE_BYTES, 1]),
    ):
        with contextlib.suppress(RuntimeError, TypeError):
            action()


def engines(bundle: str) -> None:
    engine = module.RequestEngine(bundle, options=runtime_options(threads=2, prompt_encoder=encode))
    engine.submit(Ask(PROMPT, max_tokens=3).native()).get()


def failed_engines(_bundle: str) -> None:
    with contextlib.suppress(RuntimeError):
        module.RequestEngine("/nonexistent", options=runtime_options(prompt_encoder=encode))


def runtimes(bundle: str) -> None:
    runtime = module.LLMRuntime(bundle, options=runtime_options(threads=2, prompt_encoder=encode))
    runtime.score(PROMPT)


class Generations:
    """One engine for all rounds; each round streams one answer and cancels another."""

    def __init__(self) -> None:
        self.engine: Any = None

    def __call__(self, bundle: str) -> None:
        if self.engine is None:
            self.engine = module.RequestEngine(bundle, max_batch_size=2, options=runtime_options(threads=1))
        streamed = self.engine.submit(Ask(PROMPT, max_tokens=4, logprobs=2).native())
        cancelled = self.engine.submit(Ask(PROMPT, max_tokens=50).native())
        cancelled.cancel()
        while streamed.stream().wait_pop(60_000) is not None:
            pass
        streamed.get()
        with contextlib.suppress(RuntimeError):
            cancelled.get()

    def end(self) -> None:
        self.engine = None


class SeenImages:
    """One engine for all rounds; each shows it a new image, which it must forget, and one that it knows."""

    def __init__(self) -> None:
        self.engine: VisionEngine | None = None
        self.count = 0

    def __call__(self, bundle: str) -> None:
        if self.engine is None:
            self.engine = VisionEngine(Path(bundle), caches_context=True, threads=1)
        self.count += 1
        images = [noise(32, 32, 0), noise(32, 32, self.count % 40)]
        self.engine.see(VisionAsk("<image><image>", images, do_resize=False))
        with contextlib.suppress(RequestError):
            self.engine.see(VisionAsk("<image>", images, do_resize=False))

    def end(self) -> None:
        if self.engine is not None:
            self.engine.close()
        self.engine = None


def vision_engines(bundle: str) -> None:
    engine = VisionEngine(Path(bundle), threads=2)
    engine.see(VisionAsk("<image>", [noise(32, 32)], do_resize=False))
    engine.close()


ACTIONS: dict[str, Callable[[str], None]] = {
    action.__name__: action
    for action in (
        requests,
        replaced_references,
        channels,
        media,
        guides,
        refusals,
        engines,
        failed_engines,
        runtimes,
        vision_engines,
    )
}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def open_things() -> tuple[int, int, int]:
    """Threads, open files, and references to the encoder."""
    threads, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    return threads, files, sys.getrefcount(encode)


def main(what: str, rounds: str, bundle: str) -> int:
    held = SeenImages() if what == "seen_images" else Generations()
    action = ACTIONS.get(what, held)
    before, half = open_things(), int(rounds) // 2
    for _ in range(half):
        action(bundle)
    gc.collect()
    resident = resident_bytes()
    for _ in range(half):
        action(bundle)
    gc.collect()
    growth = resident_bytes() - resident
    held.end()
    gc.collect()
    assert open_things() == before, (before, open_things())
    print(growth)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
