"""Speaker: what a TTS speaks with, whatever makes the sound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import SpeechPrompt


class Utterance(Protocol):
    """A text that can be said. ``units`` is its length as the model counts: phonemes, or tokens; 0 where unknown."""

    @property
    def units(self) -> int: ...

    def pcm(self, is_cancelled: Cancellation) -> Iterator[tuple[bytes, int]]:
        """Samples of 16 bits, mono, at 24 kHz, as they are made, with how many frames the model made for them."""
        ...


class Speaker(Protocol):
    @property
    def model_id(self) -> str: ...

    @property
    def bundle_dir(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def prepare(self, prompt: SpeechPrompt, params: AudioParams) -> Utterance:
        """Raise RequestError for what cannot be said."""
        ...

    def close(self) -> None: ...
