"""Capabilities: what a loaded runtime can do. The API refuses by it, /v1/models shows it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from edgellm.engines.embedding_output import EmbeddingOutput
from edgellm.parsing.chat_template import CLIENT_FIELDS
from edgellm.parsing.output_style import OutputStyle


@dataclass(frozen=True, slots=True)
class Transcription:
    """What a speech recognition model hears: ``languages`` are codes, none for a model of another kind.

    ``has_times``: it knows when something was said.
    """

    languages: tuple[str, ...] = ()
    translates: bool = False  # into English
    has_times: bool = True


@dataclass(frozen=True, slots=True)
class Voice:
    """``language`` is a code such as ``en_US``, "" where the voice does not say."""

    name: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Speech:
    """What a model speaks with: no voices for a model of another kind."""

    voices: tuple[Voice, ...] = ()

    @property
    def default_voice(self) -> str:
        """Of who names none; "" without voices."""
        return self.voices[0].name if self.voices else ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Lengths are tokens. ``parameters`` names the optional sampling fields the runtime has (min_p, penalties…).

    ``template_fields`` are those of CLIENT_FIELDS that have an effect; all where the template cannot be known.
    ``speech_refusal`` says why a model that can speak does not in this launch, "" otherwise.
    """

    runtime: str  # "native" | "tensorrt"
    executor: str  # "fused" | "ggml", "" where the runtime does not say
    max_batch_size: int
    max_input_len: int
    max_kv_cache_capacity: int
    vocab_size: int
    in_flight_batching: bool
    context_cache: bool
    streaming: str = "incremental"  # "incremental" | "buffered"
    input_modalities: tuple[str, ...] = ("text",)
    output_modalities: tuple[str, ...] = ("text",)
    guided_decoding: tuple[str, ...] = ()
    speculative_method: str = "none"
    kv_cache_dtype: str = "f16"
    parameters: frozenset[str] = field(default_factory=frozenset)
    template_fields: frozenset[str] = CLIENT_FIELDS
    output_style: OutputStyle = field(default_factory=OutputStyle)
    speech_refusal: str = ""
    embeddings: EmbeddingOutput = field(default_factory=EmbeddingOutput)
    executor_device: str = ""  # what it runs on, for people
    executor_reason: str = ""  # why this executor, for people
    transcription: Transcription = field(default_factory=Transcription)
    speech: Speech = field(default_factory=Speech)

    @property
    def only_speaks(self) -> bool:
        """Text goes in and none comes out."""
        return bool(self.speech.voices) and "text" not in self.output_modalities


def capabilities_of_sound(runtime: str, *, max_length: int, **further: Any) -> Capabilities:
    """Those of a model of sound that has no engine for text: one request at a time unless ``further`` says more.

    ``max_length`` is what it takes or writes at once, in its own unit.
    """
    alone = Capabilities(
        runtime=runtime,
        executor="",
        max_batch_size=1,
        max_input_len=max_length,
        max_kv_cache_capacity=max_length,
        vocab_size=0,
        in_flight_batching=False,
        context_cache=False,
    )
    return replace(alone, **further)
