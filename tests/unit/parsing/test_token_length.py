"""How much text a token can stand for: never fewer tokens than the bound says, and no bound where there is none."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.tiny_tokenizer import TinyTokenizer
from tests.unit.engines.vocabulary_models import sentencepiece_model
from tests.unit.parsing.codecs import tokenizer_text

from edgellm.engines.gguf_file import read_gguf
from edgellm.engines.tokenizer_json import tokenizer_files
from edgellm.parsing.prompt_codec import PromptCodec
from edgellm.parsing.token_length import UNICODE_NORMALISATION_FACTOR, TokenLength, token_length

BYTE_LEVEL: dict[str, Any] = json.loads(tokenizer_text(TinyTokenizer())[0])


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path: Path = tmp_path_factory.mktemp("spm") / "spm.gguf"
    return dict(tokenizer_files(read_gguf(sentencepiece_model().write(path))).tokenizer)


def codec(tokenizer: dict[str, Any]) -> PromptCodec:
    return PromptCodec(json.dumps(tokenizer), {}, None)


def changed(**changes: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(BYTE_LEVEL)), **changes}


def test_a_byte_level_token_is_as_long_as_its_characters() -> None:
    longest = max(BYTE_LEVEL["model"]["vocab"], key=len)
    contents = [token["content"] for token in BYTE_LEVEL["added_tokens"]]
    assert token_length(BYTE_LEVEL) == TokenLength(max(len(longest), *map(len, contents)))
    one = codec(BYTE_LEVEL)
    text = contents[0] * 7
    assert one.fewest_tokens(text) == len(one.encode_text(text)) == 7


@given(st.text())
def test_no_text_has_fewer_byte_level_tokens_than_the_bound(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    one = codec(BYTE_LEVEL)
    assert one.fewest_tokens(text) <= len(one.encode_text(text))


# As in SmolLM2's vocabulary: no token for some control characters, which vanish.
WITHOUT_CONTROLS = changed(
    model={
        **BYTE_LEVEL["model"],
        "vocab": {
            text: index for text, index in BYTE_LEVEL["model"]["vocab"].items() if text not in ("\u0101", "\u0107")
        },
    }
)


@given(st.text(alphabet=st.sampled_from("ab \x01\x07\u00fc\U0001f600"), max_size=60))
def test_bytes_that_vanish_do_not_count(text: str) -> None:
    one = codec(WITHOUT_CONTROLS)
    length = token_length(WITHOUT_CONTROLS)
    assert length is not None
    assert length.dropped == b"\x01\x07"
    assert one.fewest_tokens(text) <= len(one.encode_text(text))
    assert one.encode_text("\x01\x07" * 1000) == []
    assert one.fewest_tokens("\x01\x07" * 1000) == 0
    assert one.fewest_tokens("a" * 1000) > 0


@pytest.mark.parametrize("text", ["", "hello world", "      ", "\u2581\u2581 \u2581", "\u00fc\U0001f600", "the</s><s>"])
def test_no_text_has_fewer_sentencepiece_tokens_than_the_bound(sentencepiece: dict[str, Any], text: str) -> None:
    one = codec(sentencepiece)
    assert token_length(sentencepiece) is not None
    for repeated in (text, text * 50):
        assert one.fewest_tokens(repeated) <= len(one.encode_text(repeated))


def test_no_character_shrinks_more_than_the_factor_for_normalisation() -> None:
    def most(form: str, ratio: Callable[[bytes, bytes], float]) -> float:
        points = (point for point in range(0x110000) if not 0xD800 <= point < 0xE000)
        return max(ratio(chr(p).encode(), unicodedata.normalize(form, chr(p)).encode()) for p in points)

    decomposed = most("NFKD", lambda text, normal: len(text) / len(normal))
    composed = most("NFD", lambda text, normal: len(normal) / len(text))
    assert decomposed * composed <= UNICODE_NORMALISATION_FACTOR
    plain, normalised = token_length(BYTE_LEVEL), token_length(changed(normalizer={"type": "NFC"}))
    assert plain is not None
    assert normalised == TokenLength(UNICODE_NORMALISATION_FACTOR * plain.longest_bytes)


NO_BOUND: dict[str, dict[str, Any]] = {
    "a normalizer that strips": changed(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
    "a normalizer that shortens": changed(
        normalizer={
            "type": "Sequence",
            "normalizers": [{"type": "Replace", "pattern": {"String": "aa"}, "content": "a"}],
        }
    ),
    "a normalizer that matches any amount": changed(
        normalizer={"type": "Replace", "pattern": {"Regex": "a+"}, "content": "aaaa"}
    ),
    "a pre-tokenizer that drops spaces": changed(pre_tokenizer={"type": "WhitespaceSplit"}),
    "a split that drops what it finds": changed(
        pre_tokenizer={"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed", "invert": False}
    ),
    "a control token that eats spaces": changed(
        added_tokens=[{**token, "rstrip": True} for token in BYTE_LEVEL["added_tokens"]]
    ),
    "bytes without a token that other text may become": changed(
        normalizer={"type": "NFKC"}, model={**BYTE_LEVEL["model"], "vocab": {"a": 0}, "merges": []}
    ),
    "unknown text in one token": changed(
        pre_tokenizer=None, model={**BYTE_LEVEL["model"], "unk_token": "a", "fuse_unk": True}
    ),
    "unknown text that is dropped": changed(pre_tokenizer=None),
}


@pytest.mark.parametrize("tokenizer", NO_BOUND.values(), ids=NO_BOUND)
def test_where_a_token_takes_any_amount_of_text_there_is_no_bound(tokenizer: dict[str, Any]) -> None:
    assert token_length(tokenizer) is None
    assert codec(BYTE_LEVEL).fewest_tokens("a" * 1000) > 0


def test_without_a_bound_nothing_is_refused() -> None:
    tokenizer = NO_BOUND["a control token that eats spaces"]
    assert codec(tokenizer).fewest_tokens(" " * 1_000_000) == 0
