"""SpecialTextGuard: text that came from a client can never become a control token.

Rendering a template puts two kinds of text into one string: the template's own, where ``<|im_end|>`` means the
control token, and that of messages and tools, where it means ten characters. The guard keeps them apart. Texts of
messages get a mark inside each control token's text, and at their ends where they hold part of one that a neighbour
could complete. In the rendered string a whole control text is therefore the template's: it is wrapped, the marks are
removed, and a second tokenizer, equal but for knowing control tokens only in their wrapped form, makes the ids.
Where no mark was needed, as is usual, the plain tokenizer gives the same ids and is used.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer

# Unicode noncharacters: never part of exchanged text. Where a client sends them all the same they become U+FFFD.
MARK = "\U0010fffe"
LITERAL_MARK = "\U000fffff"  # before a control token's text that is a single character and has no inside
OPEN = "\U0010ffff"
CLOSE = "\U000ffffe"
_RESERVED_CHARACTERS = re.compile(f"[{MARK}{LITERAL_MARK}{OPEN}{CLOSE}]")
_SHORT_TEXT_CHARACTERS = 4_096
_RESERVED = {ord(character): "\ufffd" for character in (MARK, LITERAL_MARK, OPEN, CLOSE)}


class SpecialTextGuard:
    """``tokenizer_json`` is the text of tokenizer.json. Thread-safe; the second tokenizer is made when first needed.

    ``guarded`` says which tokens are control tokens: those that the tokenizer calls special, where it is left out.
    """

    def __init__(
        self, tokenizer_json: str, tokenizer: Tokenizer, guarded: Callable[[AddedToken], bool] | None = None
    ) -> None:
        is_guarded = guarded or (lambda token: bool(token.special))
        self._json = tokenizer_json
        self._plain = tokenizer
        self._lock = threading.Lock()
        self._wrapped: Tokenizer | None = None
        added = list(tokenizer.get_added_tokens_decoder().values())
        special = {token.content for token in added if is_guarded(token) and token.content}
        self._special = special
        # Tokens matched after normalisation could arise from text that does not contain them yet.
        self._always_wrap = any(is_guarded(token) and token.normalized for token in added) and bool(
            tokenizer.normalizer is not None
        )
        self._template_texts = _alternatives(
            {token.content for token in added if token.content}, prefix=f"(?<!{LITERAL_MARK})"
        )
        self._singles = _alternatives({text for text in special if len(text) == 1})
        self._first_characters = _alternatives({text for text in special if len(text) > 1}, prefix="(?=", suffix=").")
        starts = {text[:length] for text in special for length in range(1, len(text))}
        self._dangling_end = _alternatives(starts, suffix=r"\Z")
        ends = {text[start:] for text in special for start in range(1, len(text))}
        self._dangling_start = _alternatives(ends)

    def mark(self, text: str) -> str:
        """``text`` as it may be rendered: control tokens in it, and parts of them at its ends, are marked."""
        if _RESERVED_CHARACTERS.search(text):
            text = text.translate(_RESERVED)
        marked = text
        if self._singles is not None:
            marked = self._singles.sub(lambda match: LITERAL_MARK + match[0], marked)
        if self._first_characters is not None:
            marked = self._first_characters.sub(lambda match: match[0] + MARK, marked)
        if self._dangling_end is not None and self._dangling_end.search(text):
            marked += MARK
        if self._dangling_start is not None and self._dangling_start.match(text):
            marked = MARK + marked
        return marked

    def unmark(self, rendered: str) -> str:
        return rendered.replace(MARK, "").replace(LITERAL_MARK, "")

    def encode(self, rendered: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of a rendered prompt; marks do not count as text."""
        if MARK not in rendered and LITERAL_MARK not in rendered and not self._always_wrap:
            return token_ids(self._plain, rendered, add_special_tokens=add_special_tokens)
        text = rendered
        if self._template_texts is not None:
            text = self._template_texts.sub(self._wrap, text)
        return token_ids(self._wrapped_tokenizer(), self.unmark(text), add_special_tokens=add_special_tokens)

    def _wrap(self, match: re.Match[str]) -> str:
        return f"{OPEN}{match[0]}{CLOSE}" if match[0] in self._special else match[0]

    def _wrapped_tokenizer(self) -> Tokenizer:
        with self._lock:
            if self._wrapped is None:
                self._wrapped = Tokenizer.from_str(json.dumps(_wrapped_json(json.loads(self._json), self._special)))
            return self._wrapped


def token_ids(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    """Token ids of ``text``; other threads run meanwhile, however long it is."""
    if len(text) <= _SHORT_TEXT_CHARACTERS:
        encoding = tokenizer.encode(text, add_special_tokens=add_special_tokens)
    else:  # encode() keeps the interpreter to itself, for seconds on megabytes; the batch call does not
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    ids: list[int] = encoding.ids
    return ids


def _alternatives(texts: set[str], prefix: str = "", suffix: str = "") -> re.Pattern[str] | None:
    """Longest first, as the tokenizer matches; None when there is nothing to match."""
    if not texts:
        return None
    ordered = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile(f"{prefix}(?:{'|'.join(map(re.escape, ordered))}){suffix}", re.DOTALL)


def _wrapped_json(tokenizer: dict[str, Any], special: set[str]) -> dict[str, Any]:
    """The same tokenizer, its control tokens known under their wrapped text and by their old ids."""
    model = tokenizer["model"]
    vocabulary: dict[str, int] = dict(model["vocab"])
    merged = {"".join(merge) if isinstance(merge, list) else merge.replace(" ", "", 1) for merge in model["merges"]}
    for token in tokenizer["added_tokens"]:
        text = token["content"]
        if text not in special:
            continue
        token["content"] = f"{OPEN}{text}{CLOSE}"
        if text not in merged:
            vocabulary.pop(text, None)
        vocabulary[token["content"]] = token["id"]
        if model.get("unk_token") == text and text not in vocabulary:
            model["unk_token"] = token["content"]
    model["vocab"] = vocabulary
    return tokenizer
