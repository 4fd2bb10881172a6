"""The codec of a bundle: made of its files, each of which is named when it is wrong."""

from __future__ import annotations

import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.models.bundles import lowered_bundle_of
from tests.models.tiny_tokenizer import CHATML_TEMPLATE, TinyTokenizer
from tests.models.tiny_vision import VISION_VARIANTS, write_vision_checkpoint
from tests.unit.parsing.codecs import codec

from edgellm.errors import CheckpointError, UnsupportedModalityError, UnsupportedModelError
from edgellm.runtime.bundle_codec import bundle_codec

CHATML = TinyTokenizer()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    CHATML.write(tmp_path, 1024)
    (tmp_path / "chat_template.jinja").write_text(CHATML_TEMPLATE)
    return tmp_path


def test_a_bundle_is_read_from_its_files(folder: Path) -> None:
    one = bundle_codec(folder)
    assert one.encode_chat([{"role": "user", "content": "x"}]) == codec(CHATML).encode_chat(
        [{"role": "user", "content": "x"}]
    )
    assert "<|im_end|>" in one.special_tokens.values()
    assert one.vocab_size == len(CHATML.vocabulary()[0])


def test_who_asks_for_the_same_bundle_shares_its_codec_as_long_as_somebody_keeps_it(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        codecs = list(pool.map(lambda _: bundle_codec(folder), range(8)))
    assert all(one is codecs[0] for one in codecs)
    kept = weakref.ref(codecs[0])
    codecs.clear()
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja"])
def test_files_that_were_replaced_are_read_anew(folder: Path, name: str) -> None:
    before = bundle_codec(folder)
    again = folder / "again"
    again.write_bytes((folder / name).read_bytes())
    again.replace(folder / name)
    assert bundle_codec(folder) is not before


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("tokenizer.json", b"", "tokenizer.json is not a valid tokenizer"),
        ("tokenizer.json", b"{}", "tokenizer.json is not a valid tokenizer"),
        ("tokenizer.json", b"\xff", "not UTF-8"),
        ("tokenizer.json", b"[" * 100_000, "tokenizer.json is not a valid tokenizer"),
        ("tokenizer_config.json", b"[]", "not a JSON object"),
        ("tokenizer_config.json", b"{", "not JSON"),
        ("chat_template.jinja", b"{% if", "the chat template is not valid"),
        ("chat_template.jinja", b"\xff", "not UTF-8"),
    ],
)
def test_each_damaged_file_is_named(folder: Path, name: str, content: bytes, reason: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=reason) as caught:
        bundle_codec(folder)
    assert str(folder) in str(caught.value)


def test_a_tokenizer_that_panics_when_used_is_refused_when_loaded(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<nowhere>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="is not a valid tokenizer"):
        bundle_codec(folder)


def test_a_missing_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: No such file"):
        bundle_codec(folder)


def test_another_kind_of_tokenizer_is_refused(folder: Path) -> None:
    content = {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UnsupportedModelError, match=r"of kind WordLevel are not supported \(BPE is\)"):
        bundle_codec(folder)


def test_settings_for_padding_and_truncation_are_ignored(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert bundle_codec(folder).encode_text("hello " * 20) == codec(CHATML).encode_text("hello " * 20)


def test_a_bundle_that_sees_takes_images_in_their_places(tmp_path: Path) -> None:
    checkpoint = write_vision_checkpoint(tmp_path / "model", VISION_VARIANTS["smolvlm"])
    bundle = lowered_bundle_of(checkpoint, tmp_path / "bundle").directory
    parts = [
        {"type": "text", "text": "a "},
        {"type": "image"},
        {"type": "text", "text": " b <image> c"},
        {"type": "image"},
    ]
    messages = [{"role": "user", "content": parts}]
    sighted = bundle_codec(bundle)
    placeholder = sighted.template_ids("<image>")
    ids = sighted.encode_chat(messages)
    # What a client types is text, and never the place of an image.
    assert sum([token] == placeholder for token in ids) == 2
    assert sighted.decode(ids, skip_special_tokens=False).startswith("<|im_start|>user: a <image> b <image> c<image>")
    (bundle / "visual").rename(tmp_path / "visual")
    with pytest.raises(UnsupportedModalityError, match=r"messages\[0\]\.content\[1\]: this model takes no image input"):
        bundle_codec(bundle).encode_chat(messages)


@pytest.mark.parametrize("is_special", [True, False])
def test_a_placeholder_in_a_client_s_text_is_text_everywhere(tmp_path: Path, is_special: bool) -> None:
    """Also in raw prompts, where other control tokens are tokens, and of a tokenizer that does not call it special."""
    checkpoint = write_vision_checkpoint(tmp_path / "model", VISION_VARIANTS["smolvlm"])
    bundle = lowered_bundle_of(checkpoint, tmp_path / "bundle").directory
    tokenizer = json.loads((bundle / "tokenizer.json").read_text())
    for token in tokenizer["added_tokens"]:
        token["special"] = is_special or token["content"] != "<image>"
    (bundle / "tokenizer.json").write_text(json.dumps(tokenizer))
    sighted = bundle_codec(bundle)
    (placeholder,) = sighted.template_ids("<image>")
    texts: list[Any] = ["a <image> b", "<image>", [{"type": "text", "text": "<ima"}, {"type": "text", "text": "ge>"}]]
    for content in texts:
        for has_template in (True, False):
            ids = sighted.encode_chat([{"role": "user", "content": content}], apply_chat_template=has_template)
            assert placeholder not in ids, (content, has_template)
            assert "<image>" in sighted.decode(ids, skip_special_tokens=False)
    raw = sighted.encode_text("<|im_start|>see <image><|im_end|>")
    assert placeholder not in raw
    assert sighted.decode(raw, skip_special_tokens=False) == "<|im_start|>see <image><|im_end|>"
    assert raw[:1] == sighted.template_ids("<|im_start|>"), "other control tokens of a raw prompt are tokens"
    beside = [{"type": "text", "text": "x<image>"}, {"type": "image"}]
    assert sighted.encode_chat([{"role": "user", "content": beside}]).count(placeholder) == 1
    assert sighted.encode_text("plain text") == sighted.template_ids("plain text")
