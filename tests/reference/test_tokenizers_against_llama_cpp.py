"""The tokenizer made from a GGUF file gives exactly the ids that llama.cpp gives for that file."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

import pytest
from tests.unit.engines.vocabulary_models import VocabularyModel, sample_texts, sentencepiece_model
from tokenizers import Tokenizer

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.gguf_file import read_gguf
from edgellm.engines.pretokenizers import PRE_TOKENIZERS
from edgellm.engines.source import resolve
from edgellm.engines.tokenizer_json import tokenizer_files

pytest.importorskip("xllamacpp", reason="llama.cpp is the peer of this test; it is in the bench dependency group")
from tests.reference.llama_cpp_peer import LlamaCppPeer, PeerOptions

PEER_OPTIONS = PeerOptions(context_tokens=128)
SPECIAL_TEXTS = (
    "<s>a</s> b",
    "[INST] hi [/INST]",
    "a<tool> b <tool>c",
    "<|im_start|>user\nHi<|im_end|>\n",
    "x<|endoftext|>y",
    "<|im_start|",
    "<|<|im_end|>|>",
)


def tokenizer_of(path: Path) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(tokenizer_files(read_gguf(path)).tokenizer))


def assert_agreement(path: Path, texts: list[str], *, composed: bool = False) -> None:
    """``composed``: the kind normalises to NFC, as its checkpoints do and llama.cpp does not."""
    tokenizer = tokenizer_of(path)
    with LlamaCppPeer(path, PEER_OPTIONS) as peer:
        for text in texts:
            expected = peer.tokenize(unicodedata.normalize("NFC", text) if composed else text, add_special=True)
            assert tokenizer.encode(text).ids == expected, text


@pytest.mark.model
def test_the_default_model(default_model: Path) -> None:
    assert_agreement(default_model, [*sample_texts(400), *SPECIAL_TEXTS, Path(__file__).read_text()])


def different_kinds() -> list[str]:
    """One name for each way of splitting; the others are further names of the same ways."""
    ways = {(str(entry.steps), entry.ignore_merges): entry.kind for entry in reversed(PRE_TOKENIZERS.values())}
    return sorted(ways.values())


@pytest.fixture(scope="session")
def default_model() -> Path:
    return resolve("smollm2-135m-instruct", models_dir(default_cache_dir(os.environ))).path


@pytest.mark.model
@pytest.mark.parametrize("pre", different_kinds())
def test_every_byte_level_kind_on_a_real_vocabulary(default_model: Path, tmp_path: Path, pre: str) -> None:
    source = read_gguf(default_model)
    texts, kinds, merges = (
        source.strings("tokenizer.ggml.tokens"),
        source.integers("tokenizer.ggml.token_type"),
        source.strings("tokenizer.ggml.merges"),
    )
    assert texts
    assert kinds
    path = VocabularyModel(texts, kinds, pre=pre, merges=merges).write(tmp_path / f"{pre}.gguf")
    composed = PRE_TOKENIZERS[pre].normalizer is not None
    assert_agreement(path, [*sample_texts(150, seed=5), *SPECIAL_TEXTS], composed=composed)


@pytest.mark.parametrize("flags", [{}, {"add_space_prefix": False}, {"add_bos_token": False, "add_eos_token": True}])
def test_sentencepiece(tmp_path: Path, flags: dict[str, bool]) -> None:
    path = sentencepiece_model(**flags).write(tmp_path / "spm.gguf")
    assert_agreement(path, [*sample_texts(300), *SPECIAL_TEXTS, "the model is in that world for the word hello"])
