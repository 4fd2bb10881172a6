"""How much text one token can stand for, so that text far too long is refused without being tokenised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NEVER_IN_UTF_8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
# What normalisation can take from text in UTF-8: compatibility forms are at most 4 times what they stand for
# (U+1D400 becomes A), and composition makes one character of at most 3 times its bytes (U+1100 U+1161 U+11A8).
UNICODE_NORMALISATION_FACTOR = 12
_UNICODE_NORMALISERS = frozenset({"NFC", "NFD", "NFKC", "NFKD"})
_KEEPING_NORMALISERS = frozenset({"Prepend", "ByteLevel"})
_KEEPING_PRE_TOKENIZERS = frozenset({"ByteLevel", "Digits", "Metaspace"})
_SPLITTING_PRE_TOKENIZERS = frozenset({"Split", "Punctuation"})


@dataclass(frozen=True, slots=True)
class TokenLength:
    """``longest_bytes`` of UTF-8 text is the most that one token stands for, not counting ``dropped`` bytes.

    Some vocabularies have no token for some bytes, mostly control characters: those vanish.
    """

    longest_bytes: int
    dropped: bytes = b""

    def fewest_tokens(self, text: str) -> int:
        """A number of tokens that ``text`` has at least."""
        data = text.encode("utf-8", "surrogatepass")
        return -(-len(data.translate(None, self.dropped)) // self.longest_bytes)


def token_length(tokenizer: Mapping[str, Any]) -> TokenLength | None:
    """Of a BPE tokenizer.json. None where there is no bound: text is dropped, or a token takes any amount of it."""
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
    dropped = b""
    byte_level = any(step.get("type") == "ByteLevel" for step in pre_tokenizers)
    if byte_level:
        dropped = bytes(byte for byte, text in enumerate(_byte_texts()) if text not in vocabulary)
        if factor != 1 and not NEVER_IN_UTF_8.issuperset(dropped):  # what is dropped may come of other text
            return None
    elif not _keeps_unknown_text(model, vocabulary):
        return None
    # A character of byte-level text is a byte; elsewhere a space is longer in the vocabulary than it is in text.
    texts = [len(text) if byte_level else len(text.encode("utf-8", "surrogatepass")) for text in vocabulary]
    texts += [len(token["content"].encode("utf-8", "surrogatepass")) for token in added]
    return TokenLength(factor * max(texts, default=1), dropped)


def _byte_texts() -> list[str]:
    """The character that stands for each byte in byte-level BPE: itself where it is printable, else one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256)]


def _keeps_unknown_text(model: Mapping[str, Any], vocabulary: Mapping[str, int]) -> bool:
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
