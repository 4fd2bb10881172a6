from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf
from tests.models.tiny_tokenizer import TinyTokenizer
from tests.unit.engines.vocabulary_models import VocabularyModel, sample_texts, sentencepiece_model
from tokenizers import Tokenizer

from edgellm.engines.gguf_file import read_gguf
from edgellm.engines.pretokenizers import PRE_TOKENIZERS, kind_of
from edgellm.engines.tokenizer_json import TokenizerFiles, tokenizer_files
from edgellm.errors import CheckpointError, UnsupportedModelError

BASE = VocabularyModel(
    texts=["<|endoftext|>", "<s>", "</s>", "a", "b", "ab", "Ġ"],
    kinds=[3, 3, 3, 1, 1, 1, 1],
    pre="gpt-2",
    merges=["a b"],
)


def files_of(model: VocabularyModel, tmp_path: Path) -> TokenizerFiles:
    return tokenizer_files(read_gguf(model.write(tmp_path / "vocabulary.gguf")))


def tokenizer_of(model: VocabularyModel, tmp_path: Path) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(files_of(model, tmp_path).tokenizer))


@pytest.mark.parametrize("variant", ["llama", "llama-llama3-rope", "mistral", "qwen3"])
def test_a_tokenizer_survives_the_way_through_gguf(tmp_path: Path, variant: str) -> None:
    model = VARIANTS[variant]
    model.tokenizer.write(tmp_path, model.context_length)
    original = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    files = tokenizer_files(read_gguf(write_gguf(tmp_path / "model.gguf", model)))
    copy = Tokenizer.from_str(json.dumps(files.tokenizer))
    for text in [*sample_texts(200), "<|im_start|>user\nhello<|im_end|>", "<think>x</think>"]:
        expected = original.encode(text)
        assert copy.encode(text).ids == expected.ids, text
        assert copy.decode(expected.ids, skip_special_tokens=False) == original.decode(
            expected.ids, skip_special_tokens=False
        )
        assert copy.decode(expected.ids) == original.decode(expected.ids)


def test_sentencepiece_scores_become_merges_and_bytes_fall_back(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(sentencepiece_model(), tmp_path)
    encoding = tokenizer.encode("hello the world")
    assert encoding.tokens == ["<s>", "▁hello", "▁the", "▁world"]
    assert tokenizer.encode("\u00fc", add_special_tokens=False).tokens == ["▁", "<0xC3>", "<0xBC>"]
    for text in ("hello  world", "\u00fcber 漢字 🙂"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_file_may_say_that_no_space_is_put_first(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(sentencepiece_model(add_space_prefix=False), tmp_path)
    ids = tokenizer.encode("hello", add_special_tokens=False).ids
    assert [tokenizer.id_to_token(index) for index in ids] == ["hello"]
    assert tokenizer.decode(ids) == "hello"


def test_begin_and_end_tokens_are_added_as_the_file_says(tmp_path: Path) -> None:
    plain = tokenizer_of(BASE, tmp_path).encode("ab").ids
    assert plain == [5]
    assert tokenizer_of(replace(BASE, flags={"add_bos_token": True}), tmp_path).encode("ab").ids == [1, 5]
    both = replace(BASE, flags={"add_bos_token": True, "add_eos_token": True})
    assert tokenizer_of(both, tmp_path).encode("ab").ids == [1, 5, 2]


@pytest.mark.parametrize(
    ("pre", "adds_bos"), [("llama-bpe", True), ("tekken", True), ("qwen2", False), ("smollm", False)]
)
def test_a_silent_file_adds_a_begin_token_where_its_kind_does(tmp_path: Path, pre: str, adds_bos: bool) -> None:
    assert files_of(replace(BASE, pre=pre), tmp_path).config["add_bos_token"] is adds_bos
    silenced = replace(BASE, pre=pre, flags={"add_bos_token": False})
    assert files_of(silenced, tmp_path).config["add_bos_token"] is False


def test_control_tokens_are_special_and_user_defined_ones_are_not(tmp_path: Path) -> None:
    added = {
        token["content"]: token["special"]
        for token in files_of(sentencepiece_model(), tmp_path).tokenizer["added_tokens"]
    }
    assert added == {"<unk>": True, "<s>": True, "</s>": True, "[INST]": True, "<tool>": False}


def test_named_tokens_reach_the_config(tmp_path: Path) -> None:
    config = files_of(BASE, tmp_path).config
    assert (config["bos_token"], config["eos_token"], config["unk_token"]) == ("<s>", "</s>", "<|endoftext|>")
    assert config["pad_token"] is None


def test_an_unknown_pre_tokenizer_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"pre-tokenizer 'viking' is not supported \(known: gpt-2, "):
        files_of(replace(BASE, pre="viking"), tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"does not name its pre-tokenizer \(tokenizer.ggml.pre\)"):
        files_of(replace(BASE, pre=None), tmp_path)


def test_an_unknown_vocabulary_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'bert' is not supported \(supported: gpt2, llama\)"):
        files_of(replace(BASE, model="bert"), tmp_path)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (replace(BASE, texts=[*BASE.texts[:-1], "a"]), "tokens: token 3 occurs twice"),
        (replace(BASE, kinds=[3] * 6), "token_type has 6 entries, not 7"),
        (replace(BASE, kinds=[99] * 7), "token_type: 99 is not a valid TokenKind"),
        (replace(BASE, merges=["a b", "a c"]), "merges: entry 1 is not a pair of known tokens"),
        (replace(BASE, merges=["ab"]), "merges: entry 0 is not a pair"),
        (replace(BASE, merges=["b a"]), "merges: entry 0 is not a pair"),
        (replace(BASE, merges=None), "merges is missing"),
        (replace(BASE, texts=["a"], kinds=[1], merges=["a a"]), "merges: entry 0"),
        (replace(BASE, texts=["x"], kinds=[1], merges=[]), "merges is missing"),
        (replace(BASE, model="llama", scores=[0.0]), "scores does not have one score for each token"),
    ],
)
def test_a_damaged_vocabulary_is_refused_by_its_key(tmp_path: Path, wrong: VocabularyModel, reason: str) -> None:
    with pytest.raises(CheckpointError, match=f"vocabulary.gguf: tokenizer.ggml.{reason}"):
        files_of(wrong, tmp_path)


def test_a_named_token_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    short = replace(BASE, texts=["a", "b"], kinds=[1, 1], merges=["a b"])
    with pytest.raises(CheckpointError):
        files_of(short, tmp_path)
    with pytest.raises(CheckpointError, match="eos_token_id is 2, the vocabulary has 2 tokens"):
        files_of(replace(short, model="llama", scores=[0.0, 0.0]), tmp_path)


def test_every_pre_tokenizer_is_found_again_from_its_fragment() -> None:
    for entry in PRE_TOKENIZERS.values():
        named = kind_of(entry.as_json())
        assert named is not None
        assert PRE_TOKENIZERS[named].steps == entry.steps


@pytest.mark.parametrize(
    ("tiny", "kind"), [("gpt2", "gpt-2"), ("smollm", "smollm"), ("llama3", "llama-bpe"), ("qwen2", "qwen2")]
)
def test_checkpoint_fragments_are_named(tmp_path: Path, tiny: str, kind: str) -> None:
    TinyTokenizer(pre_tokenizer=tiny).write(tmp_path, 64)
    assert kind_of(json.loads((tmp_path / "tokenizer.json").read_text())["pre_tokenizer"]) == kind


def test_fragments_without_a_name_have_none() -> None:
    assert kind_of(None) is None
    assert kind_of({"type": "Whitespace"}) is None
    assert kind_of({"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, 3]}) is None
