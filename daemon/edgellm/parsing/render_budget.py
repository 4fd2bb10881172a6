"""Render budget: what one rendering of a chat template may cost in time, steps and characters.

Templates come with models, and their loops run over what clients send. The environment here is jinja's immutable
sandbox with three more gates: every loop and macro takes a step, everything emitted is counted, and operators and
calls that can make something huge out of something small are checked before they run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

CLOCK_STEPS = 256
POINTER_BYTES = 8
MAX_INTEGER_BITS = 4096
MAX_FORMAT_WIDTH_DIGITS = 4
BUDGET_VARIABLE = "_edgellm_render_budget"
# A long number, or a width that comes from an argument: "%*d" and "{:{width}}".
_WIDE_FORMAT = re.compile(rf"\d{{{MAX_FORMAT_WIDTH_DIGITS + 1},}}|%[^a-zA-Z%]*\*|\{{[^{{}}]*\{{[^{{]")
_PADDING_METHODS = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs"})


class BudgetExceeded(Exception):
    """``limit`` says which limit of the budget was reached, in words for the user."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Far above what any real conversation needs, far below what would hurt the server."""

    seconds: float = 10.0
    steps: int = 5_000_000
    characters: int = 64 << 20


class RenderBudget:
    """What is left of the limits of one rendering."""

    def __init__(self, limits: RenderLimits) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._steps = 0
        self._characters = 0

    def step(self) -> None:
        self._steps += 1
        if self._steps > self._limits.steps:
            raise BudgetExceeded(f"more than {self._limits.steps} steps")
        if self._steps % CLOCK_STEPS == 0 and time.monotonic() > self._deadline:
            raise BudgetExceeded(f"more than {self._limits.seconds:g} s")

    def emit(self, characters: int) -> None:
        self._characters += characters
        if self._characters > self._limits.characters:
            raise BudgetExceeded(f"more than {self._limits.characters} characters")

    def fits(self, characters: int) -> None:
        """Check a value that is about to be made, which may never be emitted."""
        if characters > self._limits.characters:
            raise BudgetExceeded(f"a value of more than {self._limits.characters} characters")


def _budget(context: Context) -> RenderBudget:
    budget = context.resolve(BUDGET_VARIABLE)
    assert isinstance(budget, RenderBudget)  # noqa: S101  # every rendering passes it
    return budget


# As filters that take the context these are never folded into constants when a template is compiled.
@pass_context
def _step(context: Context, literal_characters: int) -> None:
    budget = _budget(context)
    budget.step()
    budget.emit(literal_characters)


@pass_context
def _emit(context: Context, value: object) -> object:
    if isinstance(value, str):
        _budget(context).emit(len(value))
        return value
    text = str(value)
    _budget(context).emit(len(text))
    return text


@pass_context
def _concat(context: Context, values: list[object]) -> str:
    texts = [str(value) for value in values]
    budget = _budget(context)
    budget.step()
    budget.fits(sum(map(len, texts)))
    return "".join(texts)


class BudgetedEnvironment(ImmutableSandboxedEnvironment):
    """``render`` must be given a RenderBudget under BUDGET_VARIABLE."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters.update({"_edgellm_step": _step, "_edgellm_emit": _emit, "_edgellm_concat": _concat})
        for name in ("join", "replace", "center", "indent", "format", "batch", "slice"):
            self.filters[name] = _checked_filter(name, self.filters[name])
        self.globals.pop("lipsum", None)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        return _Instrumentation().visit(template)  # type: ignore[no-any-return]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = _budget(context)
        budget.step()
        if operator == "+":
            if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
                budget.fits(len(left) + len(right))
        elif operator == "%":
            if isinstance(left, str):
                _refuse_wide_format(left)
        elif operator == "*":
            _check_product(budget, left, right)
        elif isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > MAX_INTEGER_BITS:
            raise BudgetExceeded("a number of too many digits")
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        plain = super().wrap_str_format(value)
        if plain is None:
            return None
        pattern = str(value.__self__)

        def checked(*args: Any, **kwargs: Any) -> str:
            _refuse_wide_format(pattern)
            return plain(*args, **kwargs)

        return checked

    # The odd names keep those of the callee's keyword arguments free.
    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(__context)
        budget.step()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            _check_text_method(budget, owner, getattr(__obj, "__name__", ""), args)
        return super().call(__context, __obj, *args, **kwargs)


class _Instrumentation(NodeTransformer):
    """Adds the steps and counts to a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _step_statement(node, node.body))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _step_statement(node, node.body))
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _step_statement(node, node.body))
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        node.nodes = [
            part if isinstance(part, nodes.TemplateData) else _filter(part, "_edgellm_emit") for part in node.nodes
        ]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "_edgellm_concat")


def _filter(expression: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(expression, name, [], [], None, None, lineno=expression.lineno)


def _step_statement(node: nodes.Node, body: list[nodes.Node]) -> nodes.ExprStmt:
    literal_characters = sum(len(data.data) for child in body for data in child.find_all(nodes.TemplateData))
    return nodes.ExprStmt(
        _filter(nodes.Const(literal_characters, lineno=node.lineno), "_edgellm_step"), lineno=node.lineno
    )


def _check_product(budget: RenderBudget, left: Any, right: Any) -> None:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, int) and isinstance(other, str | list | tuple):
            budget.fits(one * len(other))
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_INTEGER_BITS:
        raise BudgetExceeded("a number of too many digits")


def _refuse_wide_format(text: str) -> None:
    if _WIDE_FORMAT.search(text):
        raise BudgetExceeded("a formatted field that is too wide")


def _check_text_method(budget: RenderBudget, owner: str, method: str, args: tuple[Any, ...]) -> None:
    if method in _PADDING_METHODS:
        width = args[0] if args else 8
        if isinstance(width, int):
            budget.fits(width * (owner.count("\t") + 1) if method == "expandtabs" else width)
    elif method == "join" and args and isinstance(args[0], list | tuple):
        budget.fits(sum(len(part) + len(owner) for part in args[0] if isinstance(part, str)))
    elif method == "replace" and len(args) > 1:
        _check_replacement(budget, owner, args[0], args[1])


def _check_replacement(budget: RenderBudget, text: str, old: Any, new: Any) -> None:
    if isinstance(old, str) and isinstance(new, str):
        budget.fits(len(text) + text.count(old) * len(new))


def _checked_filter(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """The same filter behind a check of what it would make; jinja passes each what it was registered to take."""

    def check(budget: RenderBudget, value: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        if name == "join":
            separator = args[0] if args else options.get("d", "")
            budget.fits(sum(len(str(part)) + len(str(separator)) for part in value))
        elif name == "replace" and len(args) > 1:
            _check_replacement(budget, str(value), args[0], args[1])
        elif name in ("center", "indent"):
            width = args[0] if args else options.get("width", 0)
            if isinstance(width, int):
                budget.fits(width * (str(value).count("\n") + 1))
        elif name in ("batch", "slice"):
            count = args[0] if args else next(iter(options.values()), 0)
            if isinstance(count, int):
                budget.fits(count * POINTER_BYTES)
        elif name == "format":
            _refuse_wide_format(str(value))

    @pass_context
    def checked(context: Context, value: Any, *args: Any, **options: Any) -> Any:
        if name == "join":
            value = list(value)
        check(_budget(context), value, args, options)
        if name in ("join", "replace"):
            return plain(context.eval_ctx, value, *args, **options)
        return plain(value, *args, **options)

    return checked
