"""Vision models on the native runtime compute what an independent reference computes from the same checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.bundles import lowered_bundle_of
from tests.models.pictures import Pixels, noise
from tests.models.tiny_vision import VISION_VARIANTS, write_vision_checkpoint
from tests.native.runtime_driver import Answer, native_module
from tests.native.vision_driver import VisionAsk, VisionEngine, image_prompts, loaded, vision_options
from tests.reference.decoder import log_softmax
from tests.reference.vision import ReferenceVisionModel

from edgellm.errors import RequestError
from edgellm.runtime.bundle_codec import bundle_codec
from edgellm.runtime.vision.image_prompts import ImagePrompts

module = native_module()

LOGPROB_TOLERANCE = 2e-3
ROUNDED_LOGPROB_TOLERANCE = 0.05  # matrices of the tower in f16, those of the decoder in f16 too
EXECUTORS = ("fused", "ggml")

# Sizes that are cut into several tiles, into a line of them, and not at all; text before, between and after.
WIDE, TALL, SMALL, SQUARE = noise(40, 90, 1), noise(70, 30, 2), noise(9, 12, 3), noise(50, 50, 4)
PROMPTS = {
    "one image": VisionAsk("user:<image>what is this<|im_end|>\nassistant:", [WIDE]),
    "several images": VisionAsk("user:<image><image>and<image><|im_end|>\nassistant:", [SQUARE, TALL, SMALL]),
    "between texts": VisionAsk("the model and <image> the answer is", [TALL]),
    "image alone": VisionAsk("<image>", [SMALL]),
    "text alone": VisionAsk("user: hello world<|im_end|>\nassistant:"),
}


@pytest.fixture(scope="session")
def vision_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """``vision_model(variant, quantisation)``: the checkpoint and the bundle made of it."""

    @cache
    def make(variant: str, quantisation: str = "f32") -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp(f"{variant}-{quantisation}")
        checkpoint = write_vision_checkpoint(folder / variant, VISION_VARIANTS[variant])
        return checkpoint, lowered_bundle_of(checkpoint, folder / "bundle", quantisation).directory

    return make


@pytest.fixture(scope="session")
def bundle(vision_model: Callable[..., tuple[Path, Path]]) -> Path:
    return vision_model("smolvlm")[1]


@pytest.fixture
def make_engine(bundle: Path) -> Iterator[Callable[..., VisionEngine]]:
    engines: list[VisionEngine] = []

    def make(**options: Any) -> VisionEngine:
        engines.append(VisionEngine(bundle, **options))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def largest_difference(answer: Answer, reference: ReferenceVisionModel, ask: VisionAsk) -> float:
    """Of the reported log probabilities, each after the tokens that were generated before it."""
    ids, rows = reference.prompt(ask.text, ask.images)
    assert answer.prompt_tokens == len(ids)
    placeholder = reference.config["image_token_id"]
    logits = reference.decoder.logits_with_rows([*ids, *answer.token_ids[:-1]], placeholder, rows)
    expected = log_softmax(logits[len(ids) - 1 :])
    return max(
        abs(logprob - expected[step, token])
        for step, entries in enumerate(answer.logprobs)
        for token, logprob, _ in entries
    )


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("variant", VISION_VARIANTS)
def test_images_in_prompts_are_what_the_reference_sees(
    variant: str, executor: str, vision_model: Callable[..., tuple[Path, Path]]
) -> None:
    checkpoint, directory = vision_model(variant)
    reference = ReferenceVisionModel(checkpoint, np.float64)
    engine = VisionEngine(directory, executor=executor)
    for name, ask in PROMPTS.items():
        answer = engine.see(ask)
        assert largest_difference(answer, reference, ask) < LOGPROB_TOLERANCE, name
        assert answer.token_ids == reference.greedy(ask.text, ask.images, ask.max_tokens), name
    engine.close()


def test_a_tower_in_16_bits_stays_near_what_it_holds(vision_model: Callable[..., tuple[Path, Path]]) -> None:
    checkpoint, directory = vision_model("smolvlm", "f16")
    reference = ReferenceVisionModel(checkpoint, np.float64, matrices=np.float16)
    engine = VisionEngine(directory)
    for name, ask in PROMPTS.items():
        assert largest_difference(engine.see(ask), reference, ask) < ROUNDED_LOGPROB_TOLERANCE, name
    engine.close()


def test_the_order_of_images_is_seen(make_engine: Callable[..., VisionEngine]) -> None:
    engine = make_engine()
    text = "user:<image>and<image><|im_end|>\nassistant:"
    straight = engine.see(VisionAsk(text, [SQUARE, noise(50, 50, 5)]))
    swapped = engine.see(VisionAsk(text, [noise(50, 50, 5), SQUARE]))
    assert straight.prompt_tokens == swapped.prompt_tokens
    assert straight.logprobs != swapped.logprobs


def test_neighbours_change_nothing(make_engine: Callable[..., VisionEngine]) -> None:
    alone = {name: make_engine(prefill_chunk_tokens=16).see(ask) for name, ask in PROMPTS.items()}
    for chunk in (16, 128):
        together = make_engine(sequences=len(PROMPTS), prefill_chunk_tokens=chunk)
        sent = {name: together.send(ask) for name, ask in PROMPTS.items()}
        for name, submitted in sent.items():
            answer = submitted.answer()
            assert (answer.token_ids, answer.logprobs) == (alone[name].token_ids, alone[name].logprobs), name


def test_a_second_turn_reuses_its_image_and_no_other_one(make_engine: Callable[..., VisionEngine]) -> None:
    engine = make_engine(caches_context=True)
    first, other = noise(50, 50, 6), noise(50, 50, 7)
    start = "user:<image>what is it<|im_end|>\nassistant:"
    turn = engine.see(VisionAsk(start, [first]))
    again = engine.see(VisionAsk(start + "one<|im_end|>\nuser: and<|im_end|>\nassistant:", [first]))
    assert again.reused_tokens >= turn.prompt_tokens - 1
    fresh = make_engine().see(VisionAsk(start, [other]))
    beside = engine.see(VisionAsk(start, [other]))
    before_the_image = len(bundle_codec(engine.directory).template_ids("user:"))
    # The names of tiles are equal; the first row of the image is not.
    assert beside.reused_tokens <= before_the_image + 2
    assert (beside.token_ids, beside.prompt_tokens) == (fresh.token_ids, fresh.prompt_tokens)
    # One pixel is another image.
    changed = first.copy()
    changed[-1, -1, 2] ^= 1
    assert engine.see(VisionAsk(start, [changed])).reused_tokens <= before_the_image + 2


def test_domains_share_no_image_prefix(make_engine: Callable[..., VisionEngine]) -> None:
    engine = make_engine(caches_context=True)
    ask = VisionAsk("user:<image>what<|im_end|>\nassistant:", [SQUARE], cache_domain="one")
    engine.see(ask)
    assert engine.see(VisionAsk(ask.text, ask.images, cache_domain="two")).reused_tokens == 0


def test_an_image_that_is_not_to_be_resized_keeps_its_size(make_engine: Callable[..., VisionEngine]) -> None:
    engine = make_engine()
    ask = VisionAsk("<image>", [noise(32, 60)])
    whole = engine.see(ask).prompt_tokens
    kept = engine.see(VisionAsk("<image>", ask.images, do_resize=False)).prompt_tokens
    assert kept < whole


def test_images_are_counted(make_engine: Callable[..., VisionEngine]) -> None:
    engine = make_engine()
    ask = VisionAsk("<image><image>", [SMALL, SQUARE], do_resize=False)
    rows = 4 * (1 + 5)
    for requests in (1, 2):  # the second finds its images encoded
        engine.see(ask)
        metrics = engine.native.get_multimodal_metrics()
        assert metrics.get_total_runs() == requests
        assert (metrics.total_images, metrics.total_image_tokens) == (2 * requests, rows * requests)


def test_the_blocking_runtime_sees_as_the_engine_does(bundle: Path, make_engine: Callable[..., VisionEngine]) -> None:
    runtime = module.LLMRuntime(str(bundle), str(bundle), options=vision_options(bundle))
    ask = PROMPTS["several images"]
    answer = Answer.of(runtime.handle_request(ask.native(bundle)))
    assert answer.logprobs == make_engine().see(ask).logprobs
    assert runtime.count_prompt_tokens(ask.native(bundle)) == [answer.prompt_tokens]
    metrics = runtime.get_multimodal_metrics()
    assert (metrics.get_total_runs(), metrics.total_images) == (1, 3)


class Waiting:
    """The processor of a bundle, which makes no tiles before it may."""

    def __init__(self, prompts: ImagePrompts) -> None:
        self.expand, self.digest, self._prompts = prompts.expand, prompts.digest, prompts
        self.asked, self.may_go_on = threading.Event(), threading.Event()

    def tiles(self, pixels: Pixels, do_resize: bool) -> Pixels:
        self.asked.set()
        assert self.may_go_on.wait(60)
        return self._prompts.tiles(pixels, do_resize)


def test_others_go_on_while_an_image_is_made_ready(bundle: Path) -> None:
    prompts = image_prompts(bundle)
    assert prompts is not None
    processor = Waiting(prompts)
    options = vision_options(bundle)
    options.image_processor = processor
    engine = module.RequestEngine(str(bundle), str(bundle), max_batch_size=2, options=options)
    with ThreadPoolExecutor(1) as pool:
        handle = pool.submit(engine.submit, VisionAsk("<image>", [SMALL]).native(bundle))
        assert processor.asked.wait(60)
        other = engine.submit(VisionAsk("hello", max_tokens=40).native(bundle))
        assert len(other.get().output_ids[0]) == 40
        assert not handle.done()
        processor.may_go_on.set()
        assert len(handle.result().get().output_ids[0]) == 6


def test_the_same_image_asked_for_at_once_by_several_is_seen_alike(make_engine: Callable[..., VisionEngine]) -> None:
    engine = make_engine(sequences=4)
    ask = PROMPTS["between texts"]
    with ThreadPoolExecutor(4) as pool:
        answers = [submitted.answer() for submitted in pool.map(lambda _: engine.send(ask), range(8))]
    assert all(answer.logprobs == answers[0].logprobs for answer in answers)


# Refusals


@pytest.mark.parametrize(("text", "images"), [("<image>", []), ("<image>", [SMALL, SMALL]), ("none", [SMALL])])
def test_images_and_their_places_must_be_as_many(
    text: str, images: list[Any], make_engine: Callable[..., VisionEngine]
) -> None:
    places = text.count("<image>")
    with pytest.raises(RequestError, match=f"places for {places} images, and {len(images)} images came"):
        make_engine().see(VisionAsk(text, images))


def test_a_prompt_too_long_with_its_images_is_refused_before_they_are_encoded(
    make_engine: Callable[..., VisionEngine],
) -> None:
    engine = make_engine(max_input_tokens=32)
    with pytest.raises(module.InvalidRequest, match=r"INPUT_TOO_LONG: the prompt has \d+ tokens .* the most is 32"):
        engine.see(VisionAsk("<image>", [WIDE]))
    assert engine.native.get_multimodal_metrics().total_images == 0


def test_a_request_that_is_cancelled_is_not_encoded(make_engine: Callable[..., VisionEngine]) -> None:
    engine = make_engine()
    request = VisionAsk("<image>", [WIDE]).native(engine.directory)
    request.stream_channels[0].cancel()
    with pytest.raises(module.Error, match="the request was cancelled"):
        engine.native.submit(request)
    assert engine.native.get_multimodal_metrics().total_images == 0


def test_ids_below_zero_are_for_images_alone(make_engine: Callable[..., VisionEngine]) -> None:
    with pytest.raises(module.InvalidRequest, match="token_ids"):
        make_engine().see(VisionAsk("", token_ids=[5, -1, 6]))


def test_what_is_no_picture_is_refused_by_field(bundle: Path, make_engine: Callable[..., VisionEngine]) -> None:
    video = module.load_video_from_array(np.zeros((2, 8, 8, 3), np.uint8))
    for value, cause in ((video, "this model takes no videos"), (module.ImageData(), "an image has no pixels")):
        request = VisionAsk("<image>").native(bundle)
        request.requests[0].image_buffers = [value]
        with pytest.raises(module.InvalidRequest, match=rf"requests\[0\]\.image_buffers: {cause}"):
            make_engine().native.submit(request)


def test_an_image_that_makes_too_many_tiles_is_refused(make_engine: Callable[..., VisionEngine]) -> None:
    with pytest.raises(RequestError, match="makes 257 tiles; the most is 65"):
        make_engine().see(VisionAsk("<image>", [noise(512, 512)], do_resize=False))


def test_a_model_that_was_loaded_without_its_tower_takes_no_images(bundle: Path) -> None:
    runtime = module.LLMRuntime(str(bundle), options=vision_options(bundle))
    with pytest.raises(module.InvalidRequest, match=r"requests\[0\]\.image_buffers: this model takes no images"):
        runtime.handle_request(VisionAsk("<image>", [SMALL]).native(bundle))


def test_an_image_processor_that_is_none_is_refused(bundle: Path) -> None:
    with pytest.raises(TypeError, match="expand, digest and tiles"):
        vision_options(bundle).image_processor = object()
    options = vision_options(bundle)
    options.image_processor = None
    runtime = module.LLMRuntime(str(bundle), str(bundle), options=options)
    with pytest.raises(module.InvalidRequest, match=r"made without options\.image_processor"):
        runtime.handle_request(VisionAsk("<image>", [SMALL]).native(bundle))


def test_a_folder_without_a_tower_is_refused_by_file(tmp_path: Path, bundle: Path) -> None:
    with pytest.raises(module.ModelFileError, match=r"visual/visual\.gguf"):
        module.LLMRuntime(str(bundle), str(tmp_path), options=vision_options(bundle))


def test_what_a_processor_raises_reaches_the_caller(bundle: Path) -> None:
    class Refusing:
        def expand(self, *_: object) -> list[int]:
            raise LookupError("no place")

        digest = tiles = expand

    options = vision_options(bundle)
    options.image_processor = Refusing()
    engine = module.RequestEngine(str(bundle), str(bundle), options=options)
    with pytest.raises(LookupError, match="no place"):
        engine.submit(VisionAsk("<image>", [SMALL]).native(bundle))


def test_a_processor_that_makes_wrong_tiles_is_refused(bundle: Path) -> None:
    class Short:
        def expand(self, token_ids: list[int], _sizes: object) -> list[int]:
            return [*token_ids[1:], -1]

        def digest(self, *_: object) -> bytes:
            return b"digest"

        def tiles(self, *_: object) -> Any:
            return np.zeros((1, 32, 31, 3), np.uint8)

    options = vision_options(bundle)
    options.image_processor = Short()
    engine = module.RequestEngine(str(bundle), str(bundle), options=options)
    with pytest.raises(module.ExecutorError, match="whole number of tiles"):
        engine.submit(VisionAsk("<image>", [SMALL]).native(bundle))


def test_a_request_gives_its_pixels_back_when_it_was_taken(make_engine: Callable[..., VisionEngine]) -> None:
    engine, image = make_engine(), loaded(SMALL)
    request = VisionAsk("<image>").native(engine.directory)
    request.requests[0].image_buffers = [image]
    handle = engine.native.submit(request)
    assert len(request.requests[0].image_buffers) == 1  # the caller's request is its own
    handle.get()
