"""ModelKind: what a model is for, which decides how it is loaded and which routes take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

ModelKind = Literal["auto", "chat", "embeddings", "asr", "tts"]
"""``auto`` goes by the source: a Whisper model is ``asr``, a Piper voice ``tts``; another makes text, and embeddings
where it can.
"""

WITHOUT_TEXT: Final[Mapping[ModelKind, str]] = {"asr": "transcribes speech", "tts": "speaks"}
"""Kinds of models that have no engine and make no text, with what they do instead."""
