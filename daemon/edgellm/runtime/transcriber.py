"""Transcriber: what a lane transcribes with, whatever hears the sound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import AudioPrompt
from edgellm.runtime.outputs import TranscriptFacts, TranscriptPiece, TranscriptSegment


class Transcriber(Protocol):
    """One transcript at a time. Used from one thread at a time."""

    @property
    def model_id(self) -> str: ...

    @property
    def bundle_dir(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def transcribe(
        self, prompt: AudioPrompt, temperature: float, is_cancelled: Cancellation
    ) -> Iterator[TranscriptSegment | TranscriptPiece | TranscriptFacts]:
        """Text as it is understood, in segments where the model knows when it was said, and at the end what was heard.
        Cancelled, it ends early.

        Raises RequestError for a file that cannot be decoded, or what the model does not know.
        """
        ...

    def close(self) -> None: ...
