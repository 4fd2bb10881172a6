"""plan_answer: what a request's tools, guide and thinking mean for its prompt, its sampling and the reading of it.

Both ways to a model use it: HTTP for every protocol, and the Python API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgellm.errors import RequestError, UnsupportedParameterError
from edgellm.parsing.answer_parser import GPT_OSS, NONE, AnswerFormat
from edgellm.parsing.output_style import OutputStyle
from edgellm.runtime.answer_guide import TAG_GUIDE, AnswerGuide, GuidePaths, writes_think_blocks
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import ChatPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.tool_prompt import with_tools_as_text
from edgellm.runtime.tools import Tool, ToolChoice, normalise_tools


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """``answer_format`` is None where the text is the answer; ``guide_paths`` puts a refused guide's error right."""

    prompt: ChatPrompt
    params: SamplingParams
    answer_format: AnswerFormat | None = None
    guide_paths: GuidePaths = field(default_factory=GuidePaths)


def plan_answer(
    prompt: ChatPrompt,
    params: SamplingParams,
    capabilities: Capabilities,
    style: OutputStyle,
    *,
    auto_tool_choice: bool = True,
    guide_asked_as: str = "",
) -> AnswerPlan:
    """``style`` is the model's own with the parsers that were chosen.

    ``guide_asked_as`` is the field that asked for the guide of ``params``; empty: its mode in guided_decoding.

    ``auto_tool_choice`` False makes ``auto`` mean ``none``. Raises RequestError for tools that do not hold together.
    """
    tools, choice = normalise_tools(prompt.tools, prompt.tool_choice)
    if choice.mode == "auto" and not auto_tool_choice:
        tools, choice = [], ToolChoice("none")
    callable_tools = [
        (index, tool)
        for index, tool in enumerate(tools)
        if choice.mode != "function" or tool.name == choice.function_name
    ]
    may_reason = params.enable_thinking and writes_think_blocks(style)
    opened = prompt.apply_chat_template and prompt.add_generation_prompt
    starts_in_reasoning = opened and style.starts_in_reasoning(enable_thinking=params.enable_thinking)
    params, paths, reasons_first = _guided(
        params,
        capabilities,
        style,
        callable_tools,
        choice,
        parallel=prompt.parallel_tool_calls,
        starts_in_reasoning=starts_in_reasoning and writes_think_blocks(style),
        may_reason=may_reason,
        asked_as=guide_asked_as,
    )
    parses_calls = bool(callable_tools) and style.tool_parser != NONE
    reads_answer = style.reasoning_parser != NONE or parses_calls or style.tool_parser == GPT_OSS
    answer_format = None
    if reads_answer:
        answer_format = AnswerFormat(
            reasoning_parser=style.reasoning_parser,
            tool_parser=style.tool_parser if parses_calls or style.tool_parser == GPT_OSS else NONE,
            starts_in_reasoning=starts_in_reasoning and reasons_first,
            tools={tool.name: _schema(tool) for _, tool in callable_tools},
            parallel_tool_calls=prompt.parallel_tool_calls,
            calls_enforced=choice.is_enforced and parses_calls,
            calls_guided=parses_calls and params.guide is not None and params.guide.type == TAG_GUIDE,
            reasoning_start_token=style.reasoning_start_token,
            reasoning_end_token=style.reasoning_end_token,
        )
        if style.special_marks:
            params = replace(params, skip_special_tokens=False)
    if prompt.apply_chat_template and not style.shows_tools:
        prompt = with_tools_as_text(prompt, tools, capabilities.input_modalities)
    elif choice.mode == "none":
        prompt = replace(prompt, tools=(), tool_choice="none")
    return AnswerPlan(prompt, params, answer_format, paths)


def _guided(
    params: SamplingParams,
    capabilities: Capabilities,
    style: OutputStyle,
    tools: Sequence[tuple[int, Tool]],
    choice: ToolChoice,
    *,
    parallel: bool,
    starts_in_reasoning: bool,
    may_reason: bool,
    asked_as: str,
) -> tuple[SamplingParams, GuidePaths, bool]:
    """The sampling with a guide over the whole answer, and whether reasoning may come before what it enforces."""
    enforced = choice.is_enforced
    guide = params.guide
    if guide is not None:
        asked_as = asked_as or f"guided_decoding.{guide.type}"
    if enforced and guide is not None:
        raise RequestError(f"{asked_as} and a tool_choice that enforces a call exclude each other", param="tool_choice")
    if guide is None and not enforced:
        return params, GuidePaths(), True
    plain = GuidePaths([(f"guided_decoding.{guide.type}", asked_as)] if guide is not None else [])
    calls_beside = bool(tools) and style.tool_parser != NONE
    if guide is not None and not (calls_beside or starts_in_reasoning or may_reason):
        return params, plain, True
    if TAG_GUIDE not in capabilities.guided_decoding:
        if enforced:
            raise UnsupportedParameterError(
                "tool_choice: this model's runtime cannot enforce a call; use auto", param="tool_choice"
            )
        return params, plain, False
    answer = AnswerGuide(style)
    if guide is not None:
        answer.add_form(guide, asked_as)
    if calls_beside or enforced:
        answer.add_calls(tools, parallel=parallel and choice.mode != "function")
    whole, paths = answer.guide(starts_in_reasoning=starts_in_reasoning, may_reason=may_reason)
    return replace(params, guided_decoding=whole), paths, True


def _schema(tool: Tool) -> Mapping[str, Any]:
    schema = json.loads(tool.parameters)
    return schema if isinstance(schema, dict) else {}
