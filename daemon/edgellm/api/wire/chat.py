"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from edgellm.api import limits
from edgellm.api.wire.fields import WireModel, invalid, neutral, unsupported
from edgellm.api.wire.messages import Message
from edgellm.api.wire.sampling import Count, SamplingFields
from edgellm.api.wire.speech import name_of_voice
from edgellm.api.wire.tools import FunctionTool, ToolChoice, a_function

ChatAudioFormat = Literal["pcm16", "pcm", "wav", "mp3", "flac", "opus", "aac"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class ChatTemplateFields(WireModel):
    """The only values a client may hand to the chat template."""

    enable_thinking: bool | None = None
    reasoning_effort: ReasoningEffort | None = None


class ChatAudio(WireModel):
    """How an answer is said. What begins with ``talker_``, and what follows, samples what makes the sound."""

    voice: Annotated[str, Field(max_length=limits.NAME_CHARACTERS_MAX), BeforeValidator(name_of_voice)] | None = None
    format: ChatAudioFormat = "pcm16"
    talker_temperature: float | None = None
    talker_top_k: int | None = None
    talker_top_p: float | None = None
    repetition_penalty: float | None = None
    max_audio_length: int | None = None
    codec_chunk_frames: int | None = None
    talker_prefill_threshold: int | None = None


class ChatRequest(SamplingFields):
    messages: list[Message] = Field(min_length=1, max_length=limits.MESSAGES_MAX)
    model: str | None = Field(default=None, max_length=limits.NAME_CHARACTERS_MAX)
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=limits.TOP_LOGPROBS_MAX)

    enable_thinking: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    chat_template_kwargs: ChatTemplateFields | None = None
    apply_chat_template: bool = True
    add_generation_prompt: bool = True

    tools: list[Annotated[FunctionTool, BeforeValidator(a_function)]] = Field(
        default_factory=list, max_length=limits.TOOLS_MAX
    )
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    functions: Annotated[Any, neutral(hint="use tools")] = None
    function_call: Annotated[Any, neutral(hint="use tool_choice")] = None
    modalities: list[Literal["text", "audio"]] | None = Field(default=None, max_length=2)
    audio: ChatAudio | None = None
    prediction: Annotated[Any, neutral()] = None
    verbosity: Annotated[Any, neutral("medium")] = None
    web_search_options: Annotated[Any, neutral()] = None

    @property
    def is_spoken(self) -> bool:
        return "audio" in (self.modalities or ())

    @model_validator(mode="after")
    def _sound_is_whole(self) -> ChatRequest:
        if self.modalities is not None and "text" not in self.modalities:
            raise invalid('must be ["text"] or ["text", "audio"]', "modalities")
        if self.is_spoken and self.audio is None:
            raise invalid("is required where modalities has audio", "audio")
        if self.audio is not None and not self.is_spoken:
            raise invalid('must have "audio" where there is an audio object', "modalities")
        if self.is_spoken and self.tools:
            raise unsupported("cannot be called in an answer that is said", "tools")
        if self.is_spoken and self.logprobs:
            raise unsupported("cannot be had of an answer that is said", "logprobs")
        return self
