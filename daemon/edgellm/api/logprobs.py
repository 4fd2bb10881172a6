"""Log probabilities in the shapes of the two completion APIs."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from edgellm.runtime.outputs import LogprobEntry

TokenLogprobs = Sequence[Sequence[LogprobEntry]]  # a token: the chosen one first, then the most likely


def chat_logprobs(tokens: TokenLogprobs, top: int) -> list[dict[str, Any]]:
    """``choices[].logprobs.content``; ``top`` most likely tokens each."""
    return [
        {**_chat_entry(entries[0]), "top_logprobs": [_chat_entry(entry) for entry in entries[1 : top + 1]]}
        for entries in tokens
    ]


def _chat_entry(entry: LogprobEntry) -> dict[str, Any]:
    return {"token": entry.token, "logprob": entry.logprob, "bytes": list(entry.bytes)}


class CompletionLogprobs:
    """``choices[].logprobs`` of text completions. Offsets count characters of the text, over all deltas."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset_characters = 0

    def take(self, tokens: TokenLogprobs) -> dict[str, Any]:
        offsets: list[int] = []
        for entries in tokens:
            offsets.append(self._offset_characters)
            self._offset_characters += len(self._decoder.decode(entries[0].bytes))
        return {
            "tokens": [_token_text(entries[0]) for entries in tokens],
            "token_logprobs": [entries[0].logprob for entries in tokens],
            "top_logprobs": [
                {_token_text(entry): entry.logprob for entry in entries[1 : self._top + 1]} for entries in tokens
            ]
            if self._top
            else None,
            "text_offset": offsets,
        }


def _token_text(entry: LogprobEntry) -> str:
    """Part of a code point is spelt as bytes: this shape has no other place for them, and keys must differ."""
    try:
        return entry.bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in entry.bytes)
