"""Vocabulary of a checkpoint as GGUF metadata, so that the model file alone says what every id means.

The runtime reads from it the bytes of each token and which tokens are special; text goes through tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from edgellm.engines.gguf_model import end_token_texts
from edgellm.engines.pretokenizers import kind_of
from edgellm.engines.tokenizer_json import SPACE_MARK, TokenKind
from edgellm.errors import CheckpointError, UnsupportedModelError

PROBE_TEXT = "a"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``model`` is gpt2 (byte-level) or llama (SentencePiece). ``pre`` is None where GGUF has no name for the splits.

    ``texts`` has one entry for each row of the embedding: rows beyond the tokenizer are unused, so that ids stay.
    """

    model: str
    pre: str | None
    texts: Sequence[str]
    kinds: Sequence[TokenKind]
    merges: Sequence[str]
    scores: Sequence[float] | None
    adds_bos: bool
    adds_eos: bool
    adds_space_prefix: bool

    def id_of(self, text: str | None) -> int | None:
        return self.texts.index(text) if text is not None and text in self.texts else None

    def known_end_tokens(self) -> set[int]:
        return {
            index
            for index, (text, kind) in enumerate(zip(self.texts, self.kinds, strict=True))
            if kind is TokenKind.CONTROL and text in end_token_texts()
        }


def read_vocabulary(path: Path, tokenizer: Mapping[str, Any], tokenizer_json: str, vocab_size: int) -> Vocabulary:
    """``tokenizer`` is the parsed form of ``tokenizer_json``. Raises CheckpointError or UnsupportedModelError."""
    model = tokenizer.get("model")
    kind = model.get("type", "BPE") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(kind, str):
        raise CheckpointError(f"{path}: model is missing")
    if kind != "BPE":
        raise UnsupportedModelError(f"{path}: tokenizers of kind {kind[:40]!r} are not supported (supported: BPE)")
    byte_level = _is_byte_level(path, tokenizer, model)
    texts, kinds = _tokens(path, tokenizer, model, vocab_size, byte_level)
    merges = [_pair(path, merge) for merge in _list(path, model, "merges")]
    adds_bos, adds_eos = _frame(path, tokenizer_json)
    return Vocabulary(
        model="gpt2" if byte_level else "llama",
        pre=kind_of(tokenizer.get("pre_tokenizer")) if byte_level else "default",
        texts=texts,
        kinds=kinds,
        merges=[f"{left} {right}" for left, right in merges],
        scores=None if byte_level else _scores(texts, merges),
        adds_bos=adds_bos,
        adds_eos=adds_eos,
        adds_space_prefix=not byte_level and _adds_space_prefix(tokenizer),
    )


def _is_byte_level(path: Path, tokenizer: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    kinds = {str(step.get("type")) for step in _steps(tokenizer.get("decoder"))}
    if "ByteLevel" in kinds:
        return True
    if model.get("byte_fallback") is True and "ByteFallback" in kinds:
        return False
    raise UnsupportedModelError(
        f"{path}: its decoder ({', '.join(sorted(kinds)) or 'none'}) is not supported (supported: ByteLevel, or "
        "ByteFallback with byte_fallback)"
    )


def _steps(fragment: object) -> list[Mapping[str, Any]]:
    """The steps of a decoder, normalizer or pre-tokenizer, whether it is one step or a sequence."""
    if not isinstance(fragment, Mapping):
        return []
    for name in ("decoders", "normalizers", "pretokenizers"):
        if isinstance(fragment.get(name), list):
            return [step for step in fragment[name] if isinstance(step, Mapping)]
    return [fragment]


def _tokens(
    path: Path, tokenizer: Mapping[str, Any], model: Mapping[str, Any], vocab_size: int, byte_level: bool
) -> tuple[list[str], list[TokenKind]]:
    vocab = model.get("vocab")
    if not isinstance(vocab, Mapping):
        raise CheckpointError(f"{path}: model.vocab is not an object")
    texts: list[str | None] = [None] * vocab_size
    kinds = [TokenKind.UNUSED] * vocab_size

    def put(text: object, index: object, kind: TokenKind, where: str) -> None:
        if not isinstance(text, str) or type(index) is not int or index < 0:
            raise CheckpointError(f"{path}: {where} holds an entry that is not a text and its id")
        if index >= vocab_size:
            raise CheckpointError(
                f"{path}: {where}: token id {index} has no row in the embedding, whose vocab_size is {vocab_size}"
            )
        texts[index], kinds[index] = text, kind

    for text, index in vocab.items():
        is_byte = not byte_level and len(text) == 6 and text.startswith("<0x") and text.endswith(">")
        put(text, index, TokenKind.BYTE if is_byte else TokenKind.NORMAL, "model.vocab")
    if isinstance(model.get("unk_token"), str) and model["unk_token"] in vocab:
        kinds[vocab[model["unk_token"]]] = TokenKind.UNKNOWN
    for token in _list(path, tokenizer, "added_tokens"):
        if not isinstance(token, Mapping):
            raise CheckpointError(f"{path}: added_tokens holds an entry that is not an object")
        special = TokenKind.CONTROL if token.get("special") is True else TokenKind.USER_DEFINED
        index = token.get("id")
        unknown = type(index) is int and 0 <= index < vocab_size and kinds[index] is TokenKind.UNKNOWN
        put(token.get("content"), index, TokenKind.UNKNOWN if unknown else special, "added_tokens")
    named = [text if text is not None else f"[PAD{index}]" for index, text in enumerate(texts)]
    if len(set(named)) != len(named):
        raise CheckpointError(f"{path}: two ids have the same token text")
    return named, kinds


def _list(path: Path, values: Mapping[str, Any], name: str) -> list[Any]:
    value = values.get(name, [])
    if not isinstance(value, list):
        raise CheckpointError(f"{path}: {name} is not a list")
    return value


def _pair(path: Path, merge: object) -> tuple[str, str]:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise CheckpointError(f"{path}: model.merges holds an entry that is not a pair of tokens")
    return parts[0], parts[1]


def _scores(texts: Sequence[str], merges: Sequence[tuple[str, str]]) -> list[float]:
    """SentencePiece joins by score where BPE joins by rank: an earlier merge is a better score."""
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    return [-float(ranks.get(text, len(merges))) for text in texts]


def _frame(path: Path, tokenizer_json: str) -> tuple[bool, bool]:
    """Whether the tokenizer puts a token before and after raw text, seen from what it does."""
    try:
        tokenizer = Tokenizer.from_str(tokenizer_json)
        bare = tokenizer.encode(PROBE_TEXT, add_special_tokens=False).ids
        framed = tokenizer.encode(PROBE_TEXT, add_special_tokens=True).ids
    except BaseException as error:
        if not _is_fault_of_file(error):
            raise
        raise CheckpointError(f"{path}: not a valid tokenizer: {error}") from None
    extra = len(framed) - len(bare)
    before = next((start for start in range(extra + 1) if framed[start : start + len(bare)] == bare), 0)
    return before > 0, extra - before > 0


def _is_fault_of_file(error: BaseException) -> bool:
    """The library raises a bare Exception for what it checks, and a panic, which is none, for what it does not."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _adds_space_prefix(tokenizer: Mapping[str, Any]) -> bool:
    for step in [*_steps(tokenizer.get("normalizer")), *_steps(tokenizer.get("pre_tokenizer"))]:
        if step.get("type") == "Prepend" and step.get("prepend") == SPACE_MARK:
            return True
        if step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never":
            return True
    return False
