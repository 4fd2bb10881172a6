"""edgellm._native and NVIDIA's published module have the same surface; what differs is listed in extensions.json."""

from __future__ import annotations

from typing import Any

from tests.contract.contract_parts import contract, without_extensions, without_parts_not_provided

Report = dict[str, Any]


def test_the_published_module_is_the_committed_contract(nvidia_report: Report) -> None:
    assert without_parts_not_provided(nvidia_report["dump"]) == contract()


def test_the_native_module_is_the_committed_contract_and_its_extensions(native_report: Report) -> None:
    assert without_extensions(native_report["dump"]) == contract()


def test_the_native_module_is_the_published_module_and_its_extensions(
    native_report: Report, nvidia_report: Report
) -> None:
    assert without_extensions(native_report["dump"]) == without_parts_not_provided(nvidia_report["dump"])
