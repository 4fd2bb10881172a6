"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from edgellm.api import limits
from edgellm.api.wire.fields import WireModel, neutral
from edgellm.api.wire.messages import Message
from edgellm.api.wire.sampling import Count, SamplingFields
from edgellm.api.wire.tools import FunctionTool, ToolChoice, a_function

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class ChatTemplateFields(WireModel):
    """The only values a client may hand to the chat template."""

    enable_thinking: bool | None = None
    reasoning_effort: ReasoningEffort | None = None


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
    modalities: Annotated[Any, neutral(["text"])] = None
    audio: Annotated[Any, neutral()] = None
    prediction: Annotated[Any, neutral()] = None
    verbosity: Annotated[Any, neutral("medium")] = None
    web_search_options: Annotated[Any, neutral()] = None
