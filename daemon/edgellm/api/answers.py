"""Shapes of answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class PromptTokensDetails(TypedDict):
    cached_tokens: int


class CompletionTokensDetails(TypedDict):
    reasoning_tokens: int
    audio_tokens: NotRequired[int]


class UsageCounts(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class TopLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    content: list[ChatTokenLogprob]
    refusal: None


class CalledFunction(TypedDict):
    name: str
    arguments: str


class MessageToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: CalledFunction


class MessageAudio(TypedDict):
    id: str
    data: str
    transcript: str
    expires_at: int


class AssistantMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[object]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[MessageToolCall]]
    audio: NotRequired[MessageAudio]


class ChatChoice(TypedDict):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"] | None


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageCounts


class TextLogprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class TextChoice(TypedDict):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class TextCompletion(TypedDict):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageCounts


class Embedding(TypedDict):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(TypedDict):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class TranscriptUsage(TypedDict):
    type: Literal["duration"]
    seconds: float


class TranscriptAnswer(TypedDict):
    """``verbose_json`` has the further ones."""

    text: str
    usage: TranscriptUsage
    task: NotRequired[Literal["transcribe", "translate"]]
    language: NotRequired[str]
    duration: NotRequired[float]
    segments: NotRequired[list[dict[str, object]]]
    words: NotRequired[list[dict[str, object]]]


class VoiceObject(TypedDict):
    id: str
    object: Literal["voice"]
    model: str
    language: str


class VoiceList(TypedDict):
    object: Literal["list"]
    data: list[VoiceObject]


class ModelObject(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    edgellm: dict[str, object]


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelObject]


class RequestRecord(TypedDict):
    """Times are seconds, null for a stage that was not reached."""

    time: str
    id: str
    client: str
    route: str
    model: str
    lanes: list[str]
    priority: Literal["high", "normal", "low"]
    outcome: Literal["success", "refused", "saturated", "unavailable", "disconnected", "timed_out", "error"]
    error: str | None
    choices: int
    finish_reasons: dict[str, int]
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    queue_seconds: float | None
    prefill_seconds: float | None
    decode_seconds: float | None
    native_seconds: float | None
    total_seconds: float | None
    metadata: NotRequired[dict[str, str]]


class ErrorDetails(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(TypedDict):
    error: ErrorDetails
