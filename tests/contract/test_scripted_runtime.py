"""What stands in for a board's runtime in tests has nothing that the published module has not, under the same names.

The contract is that of the published binary, which test_contract.py holds it to.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.contract.contract_parts import contract
from tests.unit.runtime import scripted_runtime, scripted_sound, scripted_speech, scripted_values
from tests.unit.runtime.scripted_speech import SpeakingModule
from tests.unit.runtime.scripted_values import Record

CONTRACT = contract()
MODULES = (scripted_values, scripted_sound, scripted_runtime, scripted_speech)
# What tests look at: no adapter does.
FOR_TESTS = {
    "StreamChannel": {"push", "raise_signal", "set_signal", "signal", "skip_special_tokens", "cancel_calls"},
    "AudioStreamChannel": {"push", "wait_until_cancelled"},
    "RequestHandle": {"start", "channel", "cancel_calls", "get_calls"},
    "RequestEngine": {"arguments", "handles", "shutdown_modes", "steps_completed"},
    "LLMRuntime": {"arguments", "captured_graphs", "active", "most_active", "omni", "spoken"},
    "TTSRuntime": {"arguments", "speech", "names", "spoken", "calls_running"},
}


def scripted(group: str) -> dict[str, type]:
    """The stand-ins of the contract's classes, or enums."""
    return {
        name: kind
        for module in MODULES
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if name in CONTRACT[group] and not name.startswith("_")
    }


def parameters(signature: str) -> list[tuple[str, bool]]:
    """Names, and which have defaults, of a signature of the contract, without ``self``."""
    inside = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    depth, parts, begun = 0, [], 0
    for place, character in enumerate(inside):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append(inside[begun:place])
            begun = place + 1
    parts.append(inside[begun:])
    names = [part.strip() for part in parts if part.strip()]
    return [
        (re.split(r"[:=]", part)[0].strip(), re.search(r" = ", part) is not None)
        for part in names
        if not part.startswith("self")
    ]


def own_methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod))):
            yield name, getattr(kind, name)


def test_the_search_finds_what_stands_in() -> None:
    assert {"AudioData", "ImageData", "LLMRuntime", "Request", "StreamChannel", "TTSRuntime"} <= {
        *scripted("classes"),
        "Request",
    }
    assert {"FinishReason", "GuideType", "ShutdownMode"} <= set(scripted("enums"))


@pytest.mark.parametrize("name", sorted(scripted("enums")))
def test_enums_have_the_published_values(name: str) -> None:
    kind = scripted("enums")[name]
    assert issubclass(kind, enum.Enum)
    assert {member.name: member.value for member in kind}.items() <= CONTRACT["enums"][name].items()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name, kind in sorted(scripted("classes").items()) if issubclass(kind, Record)),
        ("Request", scripted_values.PlainRequest),
    ],
)
def test_value_types_have_published_fields_and_defaults(name: str, kind: type[Record]) -> None:
    published = CONTRACT["classes"][name]["properties"]
    assert set(kind.FIELDS) <= set(published)
    for field, default in kind.FIELDS.items():
        if isinstance(default, (bool, int, float, str)) and "default" in published[field]:
            published_default = published[field]["default"]
            is_float = isinstance(default, float)  # of 32 bits there
            assert default == (pytest.approx(published_default) if is_float else published_default), f"{name}.{field}"


@pytest.mark.parametrize("name", sorted(set(scripted("classes"))))
def test_methods_and_attributes_are_published(name: str) -> None:
    kind, published = scripted("classes")[name], CONTRACT["classes"][name]
    if issubclass(kind, Record):
        return
    methods = {**published["methods"], **published["static_methods"]}
    further = FOR_TESTS.get(name, set())
    for method, function in own_methods(kind):
        if method in further or isinstance(inspect.getattr_static(kind, method), property):
            continue
        assert method in methods, f"{name}.{method}"
        ours = [
            (each.name, each.default is not each.empty)
            for each in inspect.signature(function).parameters.values()
            if each.name != "self"
        ]
        published_names = [each for each, _ in parameters(methods[method][0])]
        assert [each for each, _ in ours] == published_names, f"{name}.{method}"
    fields = set(getattr(kind, "__annotations__", {})) - further
    assert {field for field in fields if not field.startswith("_")} <= {*published["properties"], *methods}


@pytest.mark.parametrize("name", [name for name in sorted(CONTRACT["functions"]) if hasattr(SpeakingModule, name)])
def test_functions_take_what_the_published_ones_take(name: str) -> None:
    ours = inspect.signature(getattr(SpeakingModule, name)).parameters.values()
    assert [(each.name, each.default is not each.empty) for each in ours] == parameters(CONTRACT["functions"][name][0])
