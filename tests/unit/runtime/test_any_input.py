"""Whatever a client sends: it is taken or refused by name, and nothing else ever happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.scripted_runtime import ScriptedModule

from edgellm.errors import RequestError
from edgellm.parsing.messages import normalise_messages, template_message
from edgellm.runtime.guided_decoding import GUIDE_TYPES, parse_guided_decoding
from edgellm.runtime.native_request import NativeRequestBuilder
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.tools import normalise_tools, template_tool

# Lone surrogates, huge numbers and NaN are part of it.
TEXTS = st.text(alphabet=st.characters(codec=None), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
PARTS = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from(["text", "refusal", "image_url"]) | JSON, "text": JSON}
)
FUNCTIONS = st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON | st.just("{}")})
CALLS = st.fixed_dictionaries({}, optional={"id": JSON, "type": JSON, "function": FUNCTIONS, "name": JSON})
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]) | JSON,
        "content": JSON | st.lists(PARTS | JSON, max_size=3),
        "name": JSON,
        "refusal": JSON,
        "reasoning": JSON,
        "reasoning_content": JSON,
        "tool_call_id": JSON,
        "tool_calls": st.lists(CALLS | JSON, max_size=2) | JSON,
        "function_call": FUNCTIONS | JSON,
    },
)
TOOLS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("function") | JSON,
        "function": st.fixed_dictionaries(
            {}, optional={"name": JSON, "description": JSON, "parameters": JSON, "strict": JSON}
        )
        | JSON,
    },
)


def outcome(call: Callable[[], Any]) -> tuple[Any, str]:
    """What the call gave, or the field that its refusal names."""
    try:
        return call(), ""
    except RequestError as refusal:
        return None, refusal.param or "unnamed"


FIELDS = sorted(SamplingParams.__dataclass_fields__)


@given(st.lists(MESSAGES | JSON, max_size=3) | JSON)
def test_messages(messages: Any) -> None:
    normal, refused = outcome(lambda: normalise_messages(messages))
    if refused:
        assert refused.startswith("messages")
        return
    module = ScriptedModule()
    builder = NativeRequestBuilder(module, context_cache=False, has_draft_model=False)  # type: ignore[arg-type]
    rendered = [template_message(message) for message in normal]
    assert [template_message(message) for message in builder.messages(normal)] == rendered
    assert [template_message(message) for message in normalise_messages(rendered)] == rendered


@given(st.lists(TOOLS | JSON, max_size=3) | JSON, JSON)
def test_tools(tools: Any, choice: Any) -> None:
    normal, refused = outcome(lambda: normalise_tools(tools, choice)[0])
    if refused:
        assert refused.startswith("tool")
        return
    rendered = [template_tool(tool) for tool in normal]
    assert [template_tool(tool) for tool in normalise_tools(rendered)[0]] == rendered


@given(st.dictionaries(st.sampled_from(FIELDS), JSON | st.dictionaries(st.integers(), JSON, max_size=2), max_size=4))
def test_sampling(values: dict[str, Any]) -> None:
    _, refused = outcome(lambda: SamplingParams(**values))
    assert not refused or any(refused.startswith(name) for name in values)


@given(st.dictionaries(st.sampled_from(GUIDE_TYPES) | TEXTS, JSON, max_size=2) | JSON)
def test_guides(value: Any) -> None:
    _, refused = outcome(lambda: parse_guided_decoding(value))
    assert not refused or refused.startswith("guided_decoding")


@pytest.mark.parametrize("name", FIELDS)
def test_every_sampling_field_is_checked(name: str) -> None:
    class Strange:
        pass

    with pytest.raises(RequestError):
        SamplingParams(**{name: Strange()})
