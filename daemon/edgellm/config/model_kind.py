"""ModelKind: what a model is for, which decides how it is loaded and which routes take it."""

from __future__ import annotations

from typing import Literal

ModelKind = Literal["auto", "chat", "embeddings", "asr", "tts"]
"""``auto`` goes by the source: a Whisper model is ``asr``, a Piper voice ``tts``; another makes text, and embeddings
where it can.
"""
