"""Pre-tokenizer kinds: the name GGUF files give to how a byte-level BPE vocabulary splits text into words.

One table serves both directions: a kind becomes a ``tokenizer.json`` fragment, and the fragment of a checkpoint
becomes a kind again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The published splitting patterns. GPT-2's is the one built into the ByteLevel pre-tokenizer.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """``ignore_merges``: a word that is a token is taken whole. ``adds_bos``: what holds when a file is silent."""

    kind: str
    steps: tuple[Mapping[str, Any], ...]
    normalizer: Mapping[str, Any] | None = None
    ignore_merges: bool = False
    adds_bos: bool = False

    def as_json(self) -> dict[str, Any]:
        if len(self.steps) == 1:
            return dict(self.steps[0])
        return {"type": "Sequence", "pretokenizers": [dict(step) for step in self.steps]}


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_GPT2_WORDS = (_byte_level(use_regex=True),)
_DIGITS_THEN_GPT2_WORDS = ({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True))
_LLAMA3_WORDS = (_split(LLAMA3_PATTERN), _byte_level(use_regex=False))
_QWEN2_WORDS = (_split(QWEN2_PATTERN), _byte_level(use_regex=False))
_TEKKEN_WORDS = (_split(TEKKEN_PATTERN), _byte_level(use_regex=False))
# What files without a name of their own mean: punctuation apart, GPT-2 words, then runs of digits by threes.
_DEFAULT_WORDS = (
    _split(r"[\p{P}\$\+<=>\^~\|]+"),
    _split(GPT2_PATTERN.removesuffix(r"|\s+")),
    _split(r"\p{N}+"),
    _split(r"[0-9][0-9][0-9]"),
    _byte_level(use_regex=False),
)
_NFC = {"type": "NFC"}

# The first kind of equal fragments is the one a checkpoint's fragment is named by.
PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    entry.kind: entry
    for entry in (
        PreTokenizer("gpt-2", _GPT2_WORDS),
        PreTokenizer("phi-2", _GPT2_WORDS),
        PreTokenizer("smollm", _DIGITS_THEN_GPT2_WORDS),
        PreTokenizer("starcoder", _DIGITS_THEN_GPT2_WORDS),
        PreTokenizer("refact", _DIGITS_THEN_GPT2_WORDS),
        PreTokenizer("llama-bpe", _LLAMA3_WORDS, ignore_merges=True, adds_bos=True),
        PreTokenizer("llama3", _LLAMA3_WORDS, ignore_merges=True, adds_bos=True),
        PreTokenizer("llama-v3", _LLAMA3_WORDS, ignore_merges=True, adds_bos=True),
        PreTokenizer("smaug-bpe", _LLAMA3_WORDS),
        PreTokenizer("qwen2", _QWEN2_WORDS, normalizer=_NFC),
        PreTokenizer("deepseek-r1-qwen", _QWEN2_WORDS, normalizer=_NFC),
        PreTokenizer("tekken", _TEKKEN_WORDS, ignore_merges=True, adds_bos=True),
        PreTokenizer("default", _DEFAULT_WORDS),
    )
}


def kind_of(fragment: object) -> str | None:
    """The kind of a checkpoint's ``pre_tokenizer`` fragment, or None when no GGUF name is known for it."""
    steps = _steps_of(fragment)
    if steps is None:
        return None
    wanted = [_essence(step) for step in steps]
    for entry in PRE_TOKENIZERS.values():
        if [_essence(step) for step in entry.steps] == wanted:
            return entry.kind
    return None


def _steps_of(fragment: object) -> Sequence[Mapping[str, Any]] | None:
    if not isinstance(fragment, Mapping):
        return None
    steps = fragment.get("pretokenizers") if fragment.get("type") == "Sequence" else [fragment]
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        return None
    return steps


def _essence(step: Mapping[str, Any]) -> tuple[object, ...]:
    """What decides the split; offsets and the defaults of absent fields do not."""
    kind = step.get("type")
    if kind == "ByteLevel":
        return ("ByteLevel", bool(step.get("add_prefix_space", True)), bool(step.get("use_regex", True)))
    if kind == "Split":
        return ("Split", str(step.get("pattern")), str(step.get("behavior")), bool(step.get("invert", False)))
    if kind == "Digits":
        return ("Digits", bool(step.get("individual_digits", False)))
    return (kind, str(sorted(step.items())))
