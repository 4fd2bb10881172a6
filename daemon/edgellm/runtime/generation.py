"""GenerationRequest: one sequence to generate, as serving hands it to a lane and a lane to its runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgellm.media.media_file import MediaFile
from edgellm.media.media_input import MediaInput
from edgellm.media.speech_formats import SpeechFormatName
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages in OpenAI form (dicts as they came over the wire, validated by the caller) and what renders them."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] = "auto"
    parallel_tool_calls: bool = True
    apply_chat_template: bool = True
    add_generation_prompt: bool = True


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Raw text: no template is applied."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt that is already token ids (native runtime only)."""

    token_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class AudioPrompt:
    """Speech to be written down. ``language`` is a code such as ``en``; None is heard from the audio.

    ``context`` is text that came before, or that shows how names are spelt. ``with_times``: the answer says when
    something was said, ``with_words`` of each word.
    """

    audio: MediaFile
    language: str | None = None
    context: str = ""
    with_times: bool = False
    with_words: bool = False
    translate: bool = False  # into English


@dataclass(frozen=True, slots=True)
class SpeechPrompt:
    """Text to be said by the voice of that name, ``speed`` times as fast as it speaks, as sound of that format."""

    text: str
    voice: str
    speed: float = 1.0
    format_name: SpeechFormatName = "pcm"


@dataclass(frozen=True, slots=True)
class SpokenOutput:
    """How an answer is said, beside its text."""

    voice: str
    format_name: SpeechFormatName = "pcm"
    params: AudioParams = field(default_factory=AudioParams)


Prompt = ChatPrompt | TextPrompt | TokenPrompt | AudioPrompt | SpeechPrompt


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """``prompt_token_ids`` is set when the front end tokenised the prompt: no one does it again.

    ``embedding`` asks for the vector of the prompt in place of an answer. ``media`` is what the parts of a chat bring
    that are no text, in the order of those parts, each of which is ``{"type": kind}`` in its message. ``spoken`` asks
    for the answer as sound, too.
    """

    prompt: Prompt
    params: SamplingParams
    prompt_token_ids: Sequence[int] | None = None
    cache_domain: str = ""
    embedding: bool = False
    media: Sequence[MediaInput] = ()
    spoken: SpokenOutput | None = None
