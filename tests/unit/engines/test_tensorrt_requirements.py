"""What TensorRT needs of a board: all is found on a whole one, and each missing piece is named with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engines.jetson_platforms import ORIN, ORIN_IN_A_CONTAINER, THOR, Board, manifest

from edgellm.engines.tensorrt.library_probe import Libraries, Library
from edgellm.engines.tensorrt.payloads import parse_payloads
from edgellm.engines.tensorrt.platform_facts import PlatformFacts
from edgellm.engines.tensorrt.platform_fingerprint import tensorrt_fingerprint
from edgellm.engines.tensorrt.release import PlatformRelease
from edgellm.engines.tensorrt.requirements import matching_payload, tensorrt_requirements, unmet
from edgellm.errors import RuntimeUnavailableError

Change = Callable[[PlatformFacts], PlatformFacts]


def changed(**values: Any) -> Change:
    return lambda facts: replace(facts, **values)


def libraries(**values: Any) -> Change:
    return lambda facts: replace(facts, libraries=replace(facts.libraries, **values))


@pytest.mark.parametrize("board", [ORIN, ORIN_IN_A_CONTAINER, THOR])
def test_a_whole_board_lacks_nothing(board: Board, tmp_path: Path) -> None:
    facts = board.facts(tmp_path)
    assert unmet(facts) == ()
    assert all(not requirement.remedy for requirement in tensorrt_requirements(facts))


@pytest.mark.parametrize(
    ("board", "payload"), [(ORIN, "jetson-orin-jp72-cu13-sm87"), (THOR, "jetson-thor-jp71-cu13-sm110")]
)
def test_the_payload_is_the_one_of_the_board(board: Board, payload: str, tmp_path: Path) -> None:
    assert matching_payload(board.facts(tmp_path)).variant_id == payload


@pytest.mark.parametrize("board", [ORIN, THOR])
@pytest.mark.parametrize(
    ("change", "names", "found"),
    [
        (changed(python_abi="cp313"), ["python", "payload"], "cp313"),
        (changed(release=PlatformRelease(problem="no marker")), ["platform", "payload"], "no marker"),
        (changed(release=PlatformRelease("l4t", "R36.4")), ["platform", "payload"], "device file says R3"),
        (libraries(driver=Library(problem="gone")), ["driver"], "gone"),
        (libraries(sms=()), ["gpu", "payload"], "no GPU"),
        (libraries(sms=(87, 110)), ["gpu", "payload"], "SM 87, SM 110"),
        (libraries(sms=(86,)), ["gpu", "payload"], "SM 86, and the device file says SM"),
        (libraries(cuda_runtime=Library(problem="gone")), ["cuda-runtime", "payload"], "gone"),
        (libraries(cuda_runtime=Library("libcudart.so.12")), ["payload"], "libcudart.so.13 instead of libcudart.so.12"),
        (libraries(tensorrt=Library(problem="gone")), ["libnvinfer", "payload"], "gone"),
        (
            libraries(tensorrt=Library("libnvinfer.so.10", "10.13.3.9")),
            ["tensorrt-bindings"],
            "10.16.0.72, and libnvinfer is 10.13.3.9",
        ),
        (changed(bindings_version=""), ["tensorrt-bindings"], "tensorrt is not installed"),
        (changed(cuda_bindings_version=""), ["cuda-bindings"], "cuda-python is not installed"),
        (changed(wheel_version="", payloads=None), ["wheel", "payload"], "not installed"),
        (changed(payloads=None, payloads_problem="not JSON"), ["payload"], "not JSON"),
        (changed(payloads=parse_payloads(manifest(("cp310",)))), ["payload"], "cp310 instead of cp312"),
    ],
)
def test_each_missing_piece_is_named_with_its_remedy(
    board: Board, change: Change, names: list[str], found: str, tmp_path: Path
) -> None:
    lacking = unmet(change(board.facts(tmp_path)))
    assert [requirement.name for requirement in lacking] == names
    assert found in lacking[0].found
    assert all(requirement.remedy for requirement in lacking)


def test_a_package_built_from_source_needs_no_payload(tmp_path: Path) -> None:
    facts = replace(ORIN.facts(tmp_path), payloads=None)
    assert unmet(facts) == ()
    assert tensorrt_fingerprint(facts).keyed["payload_id"] == "source-build"


def test_the_fingerprint_keys_what_the_loader_matches_on_and_records_patch_levels(tmp_path: Path) -> None:
    fingerprint = tensorrt_fingerprint(ORIN.facts(tmp_path))
    assert fingerprint.keyed == {
        "wheel_version": "0.11.0",
        "payload_id": "jetson-orin-jp72-cu13-sm87",
        "tensorrt_version": "10.16.0.72",
        "cuda_runtime": "libcudart.so.13",
        "sm": 87,
        "l4t": "R39.2",
    }
    assert fingerprint.recorded["l4t_full"] == "R39.2.1"
    assert fingerprint.recorded["module"] == "Orin NX 16GB"


def test_a_patch_of_the_release_keeps_every_engine_and_an_upgrade_keeps_none(tmp_path: Path) -> None:
    facts = ORIN.facts(tmp_path)
    patched = replace(facts, release=replace(facts.release, l4t_full="R39.2.2"))
    assert tensorrt_fingerprint(patched).keyed == tensorrt_fingerprint(facts).keyed
    for upgraded in (
        replace(facts, bindings_version="10.17.0.1"),
        replace(facts, wheel_version="0.11.1"),
        libraries(sms=(110,))(facts),
    ):
        assert tensorrt_fingerprint(upgraded).keyed != tensorrt_fingerprint(facts).keyed


@pytest.mark.parametrize(
    "change",
    [
        changed(wheel_version=""),
        changed(bindings_version="", libraries=Libraries()),
        libraries(cuda_runtime=Library()),
        libraries(sms=()),
        changed(payloads=None, payloads_problem="not JSON"),
    ],
)
def test_a_board_that_cannot_tell_gets_no_fingerprint(change: Change, tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailableError):
        tensorrt_fingerprint(change(ORIN.facts(tmp_path)))


def test_the_version_of_tensorrt_is_asked_of_its_library_where_the_bindings_are_unknown(tmp_path: Path) -> None:
    facts = replace(ORIN.facts(tmp_path), bindings_version="")
    assert tensorrt_fingerprint(facts).keyed["tensorrt_version"] == "10.16.0.72"
