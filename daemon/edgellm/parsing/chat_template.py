"""ChatTemplate: a model's jinja template, rendered exactly as its authors' tools do, within a budget.

What differs between templates (do they take content parts, several system messages, tool arguments as text?) is
found by rendering small probes once, see ``template_traits``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, UndefinedError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.utils import Namespace

from edgellm.errors import CheckpointError, RequestError
from edgellm.parsing.render_budget import (
    BUDGET_VARIABLE,
    BudgetedEnvironment,
    BudgetExceeded,
    RenderBudget,
    RenderLimits,
)

CLIENT_FIELDS = frozenset({"enable_thinking", "reasoning_effort"})
"""Variables of a template that clients set."""
MAX_TEMPLATE_CHARACTERS = 1 << 20
MAX_REASON_CHARACTERS = 200
MAX_JSON_INDENT = 16
# Texts shorter than this may occur in a template's own error message by chance.
MIN_TELLING_CHARACTERS = 4


class TemplateRefusal(Exception):
    """The template itself refused the messages; ``reason`` is its sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _GenerationTag(Extension):
    """``{% generation %}`` marks what an assistant wrote, for training; it renders as its body."""

    tags = {"generation"}  # noqa: RUF012  # the attribute that jinja reads

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Namespace(Namespace):
    """A namespace whose fields cannot stand in for Python's own names."""

    def __init__(*args: Any, **fields: Any) -> None:  # every name must be free to be a field
        Namespace.__init__(*args, **fields)
        for name in dict(*args[1:], **fields):
            _refuse_private(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError("a namespace field may not begin with an underscore")


def _make_dict(*args: Any, **fields: Any) -> dict[Any, Any]:
    return dict(*args, **fields)


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefusal(str(message))


def _strftime_now(format: str) -> str:  # the name templates may use
    return datetime.now().strftime(format)  # models are told the local date


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Sequence[str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(indent, int) and indent > MAX_JSON_INDENT:
        raise BudgetExceeded(f"JSON indented by more than {MAX_JSON_INDENT}")
    pair = (separators[0], separators[1]) if separators else None
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=pair, sort_keys=sort_keys)


class ChatTemplate:
    """Thread-safe: a rendering shares nothing but the compiled template.

    ``client_fields`` are those of CLIENT_FIELDS that the template reads: others have no effect.
    """

    def __init__(
        self, source: str, special_tokens: Mapping[str, str] | None = None, limits: RenderLimits | None = None
    ) -> None:
        """``special_tokens`` are variables such as bos_token. Raises CheckpointError when ``source`` is no template."""
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise CheckpointError(f"the chat template is over {MAX_TEMPLATE_CHARACTERS} characters")
        environment = BudgetedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _GenerationTag]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["namespace"] = _Namespace
        environment.globals["dict"] = _make_dict
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self.client_fields = CLIENT_FIELDS & find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(f"the chat template is not valid: line {error.lineno}: {error.message}") from None
        except (TemplateError, SyntaxError, RecursionError, MemoryError, ValueError, OverflowError) as error:
            raise CheckpointError(f"the chat template is not valid: {type(error).__name__}") from None
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        self._limits = limits or RenderLimits()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        reasoning_effort: str | None = None,
        origins: Sequence[int] | None = None,
    ) -> str:
        """The prompt text. Messages are taken as they are: ``template_messages`` brings them into form.

        ``origins`` has the index of each message in the request, for errors.

        Raises RequestError when the template refuses the messages, naming the message where that can be known.
        """

        budget = RenderBudget(self._limits)

        def attempt(count: int) -> str:
            return self.attempt(
                messages[:count],
                tools,
                add_generation_prompt=add_generation_prompt and count == len(messages),
                enable_thinking=enable_thinking,
                reasoning_effort=reasoning_effort,
                budget=budget,
            )

        try:
            return attempt(len(messages))
        except TemplateRefusal as refusal:
            index = _first_refused(attempt, len(messages), refusal.reason) if messages else None
            if index is not None and origins is not None:
                index = origins[index]
            raise RequestError(
                f"the model's chat template refuses the messages{_quoted(refusal.reason, messages)}",
                param="messages" if index is None else f"messages[{index}]",
            ) from None

    def attempt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        reasoning_effort: str | None = None,
        budget: RenderBudget | None = None,
    ) -> str:
        """One rendering; a refusal is a TemplateRefusal, so that callers can look for its cause."""
        variables: dict[str, Any] = {
            **self._special_tokens,
            "messages": messages,
            "tools": list(tools) if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            BUDGET_VARIABLE: budget or RenderBudget(self._limits),
        }
        if enable_thinking is not None:
            variables["enable_thinking"] = enable_thinking
        if reasoning_effort:
            variables["reasoning_effort"] = reasoning_effort
        try:
            return self._template.render(variables)
        except BudgetExceeded as error:
            raise RequestError(
                f"the model's chat template costs too much on these messages ({error.limit})", param="messages"
            ) from None
        except SecurityError:
            raise RequestError("the model's chat template does what a template may not do", param="messages") from None
        except UndefinedError:
            raise TemplateRefusal("it uses a field that a message lacks") from None
        except (TemplateError, RecursionError, MemoryError) as error:
            raise TemplateRefusal(f"it fails with {type(error).__name__}") from None
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            # What jinja's operators, filters and methods raise when a message is not of the shape they expect.
            raise TemplateRefusal(f"it fails with {type(error).__name__}") from None


def _first_refused(attempt: Callable[[int], str], count: int, reason: str) -> int:
    """The first message whose arrival makes the template refuse for this same reason."""

    def refused(length: int) -> bool:
        try:
            attempt(length)
        except TemplateRefusal as refusal:
            return refusal.reason == reason
        return False

    lowest, highest = 1, count
    while lowest < highest:
        middle = (lowest + highest) // 2
        if refused(middle):
            highest = middle
        else:
            lowest = middle + 1
    return lowest - 1


def _quoted(reason: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """The template's sentence, left out when it repeats what a message says."""
    if any(text in reason or reason in text for text in _texts(messages) if len(text) >= MIN_TELLING_CHARACTERS):
        return ""
    return ": " + " ".join(reason.split())[:MAX_REASON_CHARACTERS] if reason.strip() else ""


def _texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    texts: list[str] = []
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        texts.extend(part.get("text", "") if isinstance(part, Mapping) else part for part in parts if part)
    return [text for text in texts if isinstance(text, str)]
