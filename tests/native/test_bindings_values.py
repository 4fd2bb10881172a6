"""Value types of the native module: references stay sound whatever is assigned, extensions are neutral by default."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest
from tests.native.runtime_driver import native_module

module = native_module()


def request(*stops: str) -> Any:
    made = module.Request()
    made.stop_strings = list(stops)
    return made


def message(text: str) -> Any:
    return module.Message("user", [module.MessageContent("text", text)])


def test_a_reference_to_a_replaced_element_keeps_its_value() -> None:
    batch = module.LLMGenerationRequest()
    batch.requests = [request("first"), request("second")]
    second = batch.requests[1]
    batch.requests = [request("third")] * 100
    assert second.stop_strings == ["second"]
    second.stop_strings = ["changed"]
    assert [entry.stop_strings for entry in batch.requests] == [["third"]] * 100


def test_references_into_replaced_elements_keep_their_values() -> None:
    batch = module.LLMGenerationRequest()
    batch.requests = [module.Request([message("hello"), message("goodbye")])]
    content = batch.requests[0].messages[1].contents[0]
    batch.requests = []
    gc.collect()
    assert content.content == "goodbye"
    batch.requests = [module.Request([message("again")])]
    assert content.content == "goodbye"


def test_a_reference_outlives_everything_above_it() -> None:
    batch = module.LLMGenerationRequest()
    batch.requests = [module.Request([message("hello")])]
    content = batch.requests[0].messages[0].contents[0]
    del batch
    gc.collect()
    assert (content.type, content.content) == ("text", "hello")


def test_a_removed_guide_keeps_its_value() -> None:
    item = module.Request()
    item.guided_decoding = module.GuidedDecodingParams(module.GuideType.REGEX, "a" * 100)
    guide = item.guided_decoding
    item.guided_decoding = None
    assert item.guided_decoding is None
    assert guide.guide == "a" * 100
    item.guided_decoding = module.GuidedDecodingParams(module.GuideType.EBNF, "new")
    assert (guide.type, guide.guide) == (module.GuideType.REGEX, "a" * 100)
    guide.guide = "changed"
    assert item.guided_decoding.guide == "new"
    del item
    gc.collect()
    assert guide.guide == "changed"


def test_a_replaced_guide_is_replaced_in_place() -> None:
    item = module.Request()
    item.guided_decoding = module.GuidedDecodingParams(module.GuideType.REGEX, "old")
    guide = item.guided_decoding
    item.guided_decoding = module.GuidedDecodingParams(module.GuideType.EBNF, "new")
    assert guide is item.guided_decoding
    assert guide.guide == "new"


def test_a_list_without_references_leaves_nothing_behind() -> None:
    batch = module.LLMGenerationRequest()
    batch.requests = [request("first")]
    first = batch.requests[0]
    batch.requests = [request("second")]
    assert batch.requests[0] is not first


@pytest.mark.parametrize("seed", range(20))
def test_references_stay_sound_under_random_assignments(seed: int) -> None:
    """Every reference held is compared with what was last written through it."""
    chance = random.Random(seed)
    batch = module.LLMGenerationRequest()
    held: list[tuple[Any, str]] = []
    for step in range(300):
        action = chance.randrange(5)
        if action == 0:
            batch.requests = [module.Request([message(f"{step}-{index}")]) for index in range(chance.randrange(4))]
        elif action == 1 and batch.requests:
            chance.choice(batch.requests).messages = [message(f"{step}-{index}") for index in range(3)]
        elif action == 2 and batch.requests:
            contents = [entry.contents[0] for entry in chance.choice(batch.requests).messages]
            held += [(content, content.content) for content in contents]
        elif action == 3 and held:
            reference, _ = held.pop(chance.randrange(len(held)))
            reference.content = f"written-{step}"
            held = [(other, other.content if other is reference else value) for other, value in held]
            held.append((reference, f"written-{step}"))
        elif action == 4 and held:
            held.pop(chance.randrange(len(held)))
        for reference, value in held:
            assert reference.content == value


def test_extensions_are_neutral_by_default() -> None:
    extensions = module.Request().extensions
    unset = ("token_ids", "temperature", "top_p", "top_k", "max_generate_length", "num_logprobs")
    assert [getattr(extensions, name) for name in unset] == [None] * len(unset)
    assert (extensions.min_p, extensions.frequency_penalty, extensions.presence_penalty) == (0.0, 0.0, 0.0)
    assert (extensions.repetition_penalty, extensions.ignore_eos, extensions.embeddings) == (1.0, False, False)
    assert extensions.cache_domain == ""


def test_extensions_are_part_of_their_request() -> None:
    item = module.Request()
    item.extensions.token_ids = (1, 2, 3)
    assert item.extensions.token_ids == [1, 2, 3]
    item.extensions = module.RequestExtensions()
    assert item.extensions.token_ids is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token_ids", [2**31]),
        ("token_ids", ["1"]),
        ("token_ids", [1.5]),
        ("token_ids", "1"),
        ("top_k", 2**63),
        ("max_generate_length", 1.5),
        ("num_logprobs", 2**31),
        ("min_p", "0"),
        ("cache_domain", "\ud800"),
        ("cache_domain", None),
    ],
)
def test_extensions_refuse_wrong_types(field: str, value: object) -> None:
    with pytest.raises(TypeError):
        setattr(module.RequestExtensions(), field, value)


def test_options_have_the_documented_defaults() -> None:
    options = module.RuntimeOptions()
    assert (options.executor, options.threads, options.max_batch_size) == ("auto", 0, 4)
    assert (options.max_input_tokens, options.max_kv_tokens, options.context_cache_tokens) == (0, 0, -1)
    assert (options.kv_page_tokens, options.prefill_chunk_tokens, options.kv_type) == (32, 128, "f16")
    assert (options.portable_attention, options.guidance_library, options.prompt_encoder) == (False, "", None)


@pytest.mark.parametrize(
    ("field", "value"),
    [("threads", 2**31), ("threads", 1.5), ("executor", None), ("max_kv_tokens", 2**63), ("prompt_encoder", "text")],
)
def test_options_refuse_wrong_types(field: str, value: object) -> None:
    with pytest.raises(TypeError):
        setattr(module.RuntimeOptions(), field, value)


def test_errors_form_one_tree_beside_submit_error() -> None:
    assert module.Error.__bases__ == (RuntimeError,)
    for kind in (module.ModelFileError, module.InvalidRequest, module.ExecutorError):
        assert kind.__bases__ == (module.Error,)
    assert module.SubmitError.__bases__ == (Exception,)
