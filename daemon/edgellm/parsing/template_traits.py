"""TemplateTraits: how a chat template wants its messages, found by rendering small probes once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.errors import RequestError
from edgellm.parsing.chat_template import ChatTemplate, TemplateRefusal

# Words that no template contains; letters only, so that trimming, escaping and JSON leave them alone.
_FIRST = "Zqprobefirst"
_SECOND = "Zqprobesecond"
_KEY = "zqprobekey"
_SHORT_ID = "call00000"
_LONG_ID = "call_0123456789abcdef01234567"


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """``takes_parts``: content as a list of parts; ``needs_parts``: only so. ``takes_null``: content may be None.

    ``merges_systems``: several leading system messages must become one. ``arguments_as_text``: arguments of tool
    calls must be JSON text, not an object. ``shows_tools``: the tools of a request reach the prompt.
    ``short_call_ids``: ids of calls must be nine letters and digits, as Mistral's templates demand.
    """

    takes_parts: bool
    needs_parts: bool
    takes_null: bool
    merges_systems: bool
    arguments_as_text: bool
    shows_tools: bool
    short_call_ids: bool = False


def template_traits(template: ChatTemplate) -> TemplateTraits:
    text = _shows(template, [_user(_FIRST)], [_FIRST])
    parts = _shows(
        template,
        [_user([{"type": "text", "text": _FIRST}, {"type": "text", "text": _SECOND}])],
        [_FIRST, _SECOND],
        never=["'type'", '"type"'],
    )
    one_system = _shows(template, [_system(_FIRST), _user("x")], [_FIRST])
    two_systems = _shows(template, [_system(_FIRST), _system(_SECOND), _user("x")], [_FIRST, _SECOND])
    as_object = _shows(template, [_user("x"), _call({_KEY: _FIRST})], [f'"{_KEY}"', f'"{_FIRST}"'])
    as_text = _shows(template, [_user("x"), _call(f'{{"{_KEY}": "{_FIRST}"}}')], [f'{{"{_KEY}": "{_FIRST}"}}'])
    return TemplateTraits(
        takes_parts=parts,
        needs_parts=parts and not text,
        takes_null=_shows(template, [_user("x"), _call({_KEY: _FIRST})], [], never=["None"]),
        merges_systems=one_system and not two_systems,
        arguments_as_text=as_text and not as_object,
        shows_tools=_shows(template, [_user("x")], [_FIRST], tools=[_tool(_FIRST)]),
        short_call_ids=_takes(template, _call({}, _SHORT_ID)) and not _takes(template, _call({}, _LONG_ID)),
    )


def _user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _system(content: str) -> dict[str, Any]:
    return {"role": "system", "content": content}


def _call(arguments: object, call_id: str = _SHORT_ID) -> dict[str, Any]:
    function = {"name": "probe", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def _takes(template: ChatTemplate, call: Mapping[str, Any]) -> bool:
    return _shows(template, [_user("x"), call], []) or _shows(template, [_user("x"), {**call, "content": ""}], [])


def _tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


def _shows(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    wanted: Sequence[str],
    *,
    never: Sequence[str] = (),
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> bool:
    try:
        rendered = template.attempt(messages, tools, add_generation_prompt=False)
    except (TemplateRefusal, RequestError):
        return False
    return all(text in rendered for text in wanted) and not any(text in rendered for text in never)
