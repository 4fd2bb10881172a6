"""tokenizer.json and tokenizer_config.json made from the vocabulary of a GGUF file.

The result gives the same ids as the tokenizer that the file was made from. What cannot be carried over exactly is
refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from edgellm.engines.gguf_file import GgufFile
from edgellm.engines.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from edgellm.errors import CheckpointError, UnsupportedModelError

SUPPORTED_VOCABULARIES = ("gpt2", "llama")
SPACE_MARK = "\u2581"  # what SentencePiece writes for a space


class TokenKind(IntEnum):
    """Values of ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """Contents of the two files, ready for ``json.dump``."""

    tokenizer: dict[str, Any]
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    texts: Sequence[str]
    kinds: Sequence[TokenKind]
    ids: dict[str, int]


def tokenizer_files(gguf: GgufFile) -> TokenizerFiles:
    """Raises CheckpointError for a damaged vocabulary, UnsupportedModelError for a kind that is not known."""
    model = gguf.require_string("tokenizer.ggml.model")
    if model not in SUPPORTED_VOCABULARIES:
        raise UnsupportedModelError(
            f"{gguf.path}: tokenizer.ggml.model {model!r} is not supported (supported: "
            f"{', '.join(SUPPORTED_VOCABULARIES)})"
        )
    vocabulary = _vocabulary(gguf)
    if model == "gpt2":
        pre_tokenizer = _pre_tokenizer(gguf)
        parts = _byte_level_parts(gguf, vocabulary, pre_tokenizer)
        adds_bos = pre_tokenizer.adds_bos
    else:
        parts = _sentencepiece_parts(gguf, vocabulary)
        adds_bos = True
    config = _config(gguf, vocabulary, adds_bos)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary),
        **parts,
        "post_processor": _post_processor(config, vocabulary),
    }
    return TokenizerFiles(tokenizer, config)


def _vocabulary(gguf: GgufFile) -> _Vocabulary:
    texts = gguf.strings("tokenizer.ggml.tokens")
    if not texts:
        raise CheckpointError(f"{gguf.path}: tokenizer.ggml.tokens is missing or empty: the file has no tokenizer")
    numbers = gguf.integers("tokenizer.ggml.token_type")
    if numbers is None:
        numbers = [int(TokenKind.NORMAL)] * len(texts)
    if len(numbers) != len(texts):
        raise CheckpointError(f"{gguf.path}: tokenizer.ggml.token_type has {len(numbers)} entries, not {len(texts)}")
    try:
        kinds = [TokenKind(number) for number in numbers]
    except ValueError as error:
        raise CheckpointError(f"{gguf.path}: tokenizer.ggml.token_type: {error}") from None
    ids = {text: index for index, text in enumerate(texts)}
    if len(ids) != len(texts):
        index = next(index for index, text in enumerate(texts) if ids[text] != index)
        raise CheckpointError(f"{gguf.path}: tokenizer.ggml.tokens: token {index} occurs twice")
    return _Vocabulary(texts, kinds, ids)


def _pre_tokenizer(gguf: GgufFile) -> PreTokenizer:
    kind = gguf.string("tokenizer.ggml.pre")
    known = ", ".join(PRE_TOKENIZERS)
    if kind is None:
        raise UnsupportedModelError(
            f"{gguf.path}: the file does not name its pre-tokenizer (tokenizer.ggml.pre), so its text cannot be "
            f"split as the model expects — convert the model again with a current converter (known: {known})"
        )
    if kind not in PRE_TOKENIZERS:
        raise UnsupportedModelError(f"{gguf.path}: pre-tokenizer {kind!r} is not supported (known: {known})")
    return PRE_TOKENIZERS[kind]


def _byte_level_parts(gguf: GgufFile, vocabulary: _Vocabulary, pre_tokenizer: PreTokenizer) -> dict[str, Any]:
    merges = gguf.strings("tokenizer.ggml.merges")
    if merges is None:
        raise CheckpointError(f"{gguf.path}: tokenizer.ggml.merges is missing")
    ids = vocabulary.ids
    pairs: list[tuple[str, str]] = []
    for rank, merge in enumerate(merges):
        # A token may itself begin with the separator only in first place, hence the search from 1.
        cut = merge.find(" ", 1)
        left, right = merge[:cut], merge[cut + 1 :]
        if cut < 0 or left not in ids or right not in ids or left + right not in ids:
            raise CheckpointError(f"{gguf.path}: tokenizer.ggml.merges: entry {rank} is not a pair of known tokens")
        pairs.append((left, right))
    return {
        "normalizer": pre_tokenizer.normalizer,
        "pre_tokenizer": pre_tokenizer.as_json(),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _bpe(vocabulary, pairs, ignore_merges=pre_tokenizer.ignore_merges),
    }


def _sentencepiece_parts(gguf: GgufFile, vocabulary: _Vocabulary) -> dict[str, Any]:
    scores = gguf.floats("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(vocabulary.texts):
        raise CheckpointError(f"{gguf.path}: tokenizer.ggml.scores does not have one score for each token")
    adds_space = gguf.boolean("tokenizer.ggml.add_space_prefix")
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}
    prepend = {"type": "Prepend", "prepend": SPACE_MARK}
    steps = [prepend, replace] if adds_space is not False else [replace]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds_space is not False:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = _token_text(gguf, vocabulary, "unknown")
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _bpe(vocabulary, _merges_from_scores(vocabulary, scores), byte_fallback=True, unknown=unknown),
    }


def _merges_from_scores(vocabulary: _Vocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """SentencePiece joins the neighbours whose joint piece scores best; BPE ranks say the same in another form."""
    ids, kinds = vocabulary.ids, vocabulary.kinds
    joinable = {text for text, index in ids.items() if kinds[index] in (TokenKind.NORMAL, TokenKind.USER_DEFINED)}
    ranked: list[tuple[float, int, int, str, str]] = []
    for text in joinable:
        score = -scores[ids[text]]
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in joinable and right in joinable:
                ranked.append((score, ids[left], ids[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _bpe(
    vocabulary: _Vocabulary,
    merges: Sequence[tuple[str, str]],
    *,
    ignore_merges: bool = False,
    byte_fallback: bool = False,
    unknown: str | None = None,
) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": vocabulary.ids,
        "merges": [list(pair) for pair in merges],
    }


def _added_tokens(vocabulary: _Vocabulary) -> list[dict[str, Any]]:
    special = (TokenKind.CONTROL, TokenKind.UNKNOWN)
    return [
        {
            "id": index,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind in special,
        }
        for index, (text, kind) in enumerate(zip(vocabulary.texts, vocabulary.kinds, strict=True))
        if kind in special or kind is TokenKind.USER_DEFINED
    ]


def _token_text(gguf: GgufFile, vocabulary: _Vocabulary, role: str) -> str | None:
    index = gguf.integer(f"tokenizer.ggml.{role}_token_id", lowest=-1, highest=(1 << 32) - 1)
    if index is None or index in (-1, (1 << 32) - 1):
        return None
    if index >= len(vocabulary.texts):
        raise CheckpointError(
            f"{gguf.path}: tokenizer.ggml.{role}_token_id is {index}, the vocabulary has {len(vocabulary.texts)} tokens"
        )
    return vocabulary.texts[index]


def _config(gguf: GgufFile, vocabulary: _Vocabulary, adds_bos: bool) -> dict[str, Any]:
    bos, eos = (_token_text(gguf, vocabulary, role) for role in ("bos", "eos"))
    adds_bos_here = gguf.boolean("tokenizer.ggml.add_bos_token")
    return {
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": _token_text(gguf, vocabulary, "unknown"),
        "pad_token": _token_text(gguf, vocabulary, "padding"),
        "add_bos_token": bos is not None and (adds_bos if adds_bos_here is None else adds_bos_here),
        "add_eos_token": eos is not None and gguf.boolean("tokenizer.ggml.add_eos_token") is True,
    }


def _post_processor(config: dict[str, Any], vocabulary: _Vocabulary) -> dict[str, Any] | None:
    """Adds begin and end tokens around raw text; rendered templates bring their own and bypass it."""
    before = [config["bos_token"]] if config["add_bos_token"] else []
    after = [config["eos_token"]] if config["add_eos_token"] else []
    if not before and not after:
        return None

    def pieces(texts: list[str], type_id: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": text, "type_id": type_id}} for text in texts]

    def sequence(name: str, type_id: int) -> list[dict[str, Any]]:
        return [*pieces(before, type_id), {"Sequence": {"id": name, "type_id": type_id}}, *pieces(after, type_id)]

    return {
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": sequence("A", 0) + sequence("B", 1),
        "special_tokens": {
            text: {"id": text, "ids": [vocabulary.ids[text]], "tokens": [text]} for text in (*before, *after)
        },
    }
