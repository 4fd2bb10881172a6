"""Every attribute that the adapter uses is in the contract, or is a listed extension."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from tests.contract.attributes_used import AttributesUsed, find_attributes
from tests.contract.contract_parts import contract, extensions

from edgellm import runtime
from edgellm.runtime import contract as adapter_contract

RUNTIME_FOLDER = Path(next(iter(runtime.__path__)))
# These load modules, of any kind.
LOADERS = ("modules.py", "native_module.py")

Report = dict[str, Any]


@pytest.fixture(scope="module")
def known(native_report: Report) -> Report:
    """The native dump: the contract and its extensions."""
    return dict(native_report["dump"])


@pytest.fixture(scope="module")
def used(known: Report) -> AttributesUsed:
    files = [path for path in sorted(RUNTIME_FOLDER.glob("*.py")) if path.name not in LOADERS]
    return find_attributes(files, known["classes"])


def members(dump: Report, kind: str) -> set[str]:
    if kind in dump["enums"]:
        return set(dump["enums"][kind])
    entry = dump["classes"].get(kind, {"properties": {}, "methods": {}, "static_methods": {}})
    return {name for group in ("properties", "methods", "static_methods") for name in entry[group]}


def names(dump: Report) -> set[str]:
    return {name for group in ("classes", "enums", "functions", "exceptions") for name in dump[group]}


def test_the_search_finds_what_the_adapter_uses(used: AttributesUsed) -> None:
    assert {"LLMGenerationRequest", "Request", "StreamChannel", "RequestEngine", "RuntimeOptions"} <= used.names
    assert {
        ("LLMGenerationRequest", "max_generate_length"),
        ("Request", "stop_strings"),
        ("RequestExtensions", "token_ids"),
        ("ContextCacheLookupPolicy", "BYPASS"),
        ("StreamChannel", "create"),
        ("StreamChannel", "set_skip_special_tokens"),
        ("ShutdownMode", "DRAIN"),
    } <= used.members


def test_every_class_and_function_is_known(used: AttributesUsed, known: Report) -> None:
    assert used.names - names(known) == set()


def test_every_member_is_known(used: AttributesUsed, known: Report) -> None:
    assert {(kind, name) for kind, name in used.members if name not in members(known, kind)} == set()


def test_what_the_contract_lacks_is_a_listed_extension(used: AttributesUsed) -> None:
    added = extensions()["added"]
    assert used.names - names(contract()) <= {*added["classes"], *added["exceptions"], *added["functions"]}
    beyond = {(kind, name) for kind, name in used.members if name not in members(contract(), kind)}
    listed = {
        (kind, name)
        for group in ("properties", "methods")
        for kind, entries in added[group].items()
        for name in entries
    }
    assert {pair for pair in beyond if pair[0] not in added["classes"]} <= listed


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        ("StreamChunk", "StreamChunk"),
        ("StreamChannel", "StreamChannel"),
        ("GenerationResponse", "LLMGenerationResponse"),
        ("RequestHandle", "RequestHandle"),
        ("RequestEngine", "RequestEngine"),
        ("LLMRuntime", "LLMRuntime"),
    ],
)
def test_the_adapters_protocols_are_part_of_the_contract(protocol: str, kind: str) -> None:
    declared = {name for name, _ in inspect.getmembers(getattr(adapter_contract, protocol)) if not name.startswith("_")}
    assert declared
    assert declared <= members(contract(), kind)


def test_the_adapters_counters_are_part_of_the_contract() -> None:
    assert set(adapter_contract.SCHEDULING_FIELDS) <= members(contract(), "EngineMetrics")
    cache = {*adapter_contract._CONTEXT_CACHE_FIELDS, *adapter_contract._POOLS}
    assert cache == members(contract(), "ContextCacheMetrics")
