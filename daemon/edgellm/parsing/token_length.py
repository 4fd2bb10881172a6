"""How much text one token can stand for, so that text far too long is refused without being tokenised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

BYTES_OF_BYTE_LEVEL = 256
# What normalisation can take from text in UTF-8: compatibility forms are at most 4 times what they stand for
# (U+1D400 becomes A), and composition makes one character of at most 3 times its bytes (U+1100 U+1161 U+11A8).
UNICODE_NORMALISATION_FACTOR = 12
_UNICODE_NORMALISERS = frozenset({"NFC", "NFD", "NFKC", "NFKD"})
_KEEPING_NORMALISERS = frozenset({"Prepend", "ByteLevel"})
_KEEPING_PRE_TOKENIZERS = frozenset({"ByteLevel", "Digits", "Metaspace"})
_SPLITTING_PRE_TOKENIZERS = frozenset({"Split", "Punctuation"})


def longest_token_bytes(tokenizer: Mapping[str, Any]) -> int | None:
    """The most bytes of UTF-8 text that a token of a BPE tokenizer.json can stand for.

    None where there is no such number: the tokenizer drops text, or a token takes any amount of it.
    """
    model = tokenizer["model"]
    added = tokenizer.get("added_tokens") or []
    if any(token.get("lstrip") or token.get("rstrip") for token in added):
        return None
    factor = 1
    for step in _steps(tokenizer.get("normalizer"), "normalizers"):
        if step.get("type") in _UNICODE_NORMALISERS:
            factor = UNICODE_NORMALISATION_FACTOR
        elif step.get("type") not in _KEEPING_NORMALISERS and not _replaces_by_as_much(step):
            return None
    pre_tokenizers = list(_steps(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    for step in pre_tokenizers:
        splits = step.get("type") in _SPLITTING_PRE_TOKENIZERS and step.get("behavior") != "Removed"
        if step.get("type") not in _KEEPING_PRE_TOKENIZERS and not splits:
            return None
    vocabulary: Mapping[str, int] = model["vocab"]
    byte_level = any(step.get("type") == "ByteLevel" for step in pre_tokenizers)
    if not _keeps_unknown_text(model, vocabulary, byte_level):
        return None
    # A character of byte-level text is a byte; elsewhere a space is longer in the vocabulary than it is in text.
    texts = [len(text) if byte_level else len(text.encode("utf-8", "surrogatepass")) for text in vocabulary]
    texts += [len(token["content"].encode("utf-8", "surrogatepass")) for token in added]
    return factor * max(texts, default=1)


def _keeps_unknown_text(model: Mapping[str, Any], vocabulary: Mapping[str, int], byte_level: bool) -> bool:
    if byte_level:
        return sum(len(text) == 1 for text in vocabulary) >= BYTES_OF_BYTE_LEVEL
    if model.get("byte_fallback") and all(f"<0x{value:02X}>" in vocabulary for value in range(256)):
        return True
    return model.get("unk_token") in vocabulary and not model.get("fuse_unk")


def _replaces_by_as_much(step: Mapping[str, Any]) -> bool:
    pattern = step.get("pattern")
    text = pattern.get("String") if isinstance(pattern, Mapping) else None
    content = step.get("content")
    return (
        step.get("type") == "Replace"
        and isinstance(text, str)
        and isinstance(content, str)
        and len(content.encode()) >= len(text.encode())
    )


def _steps(fragment: object, name: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, whether it is none, one or a sequence."""
    if isinstance(fragment, Mapping):
        if fragment.get("type") == "Sequence":
            for step in fragment.get(name) or []:
                yield from _steps(step, name)
        else:
            yield fragment
