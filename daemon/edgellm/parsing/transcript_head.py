"""TranscriptHead: what a Qwen3-ASR model writes before a transcript, ``language English<asr_text>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LANGUAGE_NAMES: Final[Mapping[str, str]] = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fil": "Filipino",
    "fr": "French",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "mk": "Macedonian",
    "ms": "Malay",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "th": "Thai",
    "tr": "Turkish",
    "vi": "Vietnamese",
    "yue": "Cantonese",
    "zh": "Chinese",
}
"""By their codes, as the model knows them."""

_CODES: Final = {name.lower(): code for code, name in LANGUAGE_NAMES.items()}
_BEGINNING: Final = "language "
_MARK: Final = "<asr_text>"
_HEAD_CHARACTERS_MAX: Final = 64


class TranscriptHead:
    """Takes the text as it is written and gives the transcript. ``language`` is a code once the head named one."""

    def __init__(self) -> None:
        self.language: str | None = None
        self._held: str | None = ""  # None once the head is over

    def take(self, text: str) -> str:
        if self._held is None:
            return text
        held = self._held = self._held + text
        head, mark, rest = held.partition(_MARK)
        if mark:
            self._held = None
            self.language = _CODES.get(head.strip().removeprefix(_BEGINNING).strip().lower())
            return rest
        begun = held.lstrip()[: len(_BEGINNING)]
        if _BEGINNING.startswith(begun) and len(held) <= _HEAD_CHARACTERS_MAX:
            return ""
        # What does not begin so still has a head where the mark itself comes first.
        if _MARK.startswith(held.lstrip()[: len(_MARK)]):
            return ""
        return self.finish()

    def finish(self) -> str:
        """What was held back and is no head after all."""
        held, self._held = self._held, None
        return held or ""
