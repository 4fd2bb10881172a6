"""Each engine is built once in the fleet, and every board that lacks one takes it from where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible.errors", reason="needs Ansible: sh daemon/setup/run fleet")

from ansible.errors import AnsibleError
from tests.unit.ansible.collection import ROLES, plugin, program_output

from edgellm.host.operator_edits import COMING
from edgellm.host.paths import HostPaths

engine_plan = plugin("filter/engine_plan").engine_plan
archives_in = plugin("lookup/engine_archives").archives_in
KEY = {name: name * 64 for name in "abc"}


def engine(name: str) -> str:
    return f"model-{KEY[name][:16]}"


def board(has: str = "", lacks: str = "", without_files: str = "") -> dict[str, Any]:
    """The engines that it wants, by their letter; of the last ones it does not know the key."""
    wants = [
        {"wanted": name, "key": KEY[name], "engine": engine(name) if name in has else None} for name in has + lacks
    ]
    wants += [{"wanted": name, "key": None, "engine": None} for name in without_files]
    return {"wants": wants, "engines": {KEY[name]: engine(name) for name in has}, "reason": None}


def test_of_boards_that_lack_the_same_one_builds() -> None:
    plan = engine_plan({"b1": board(lacks="a"), "b2": board(lacks="a"), "b3": board(without_files="a")}, [])
    assert (plan["builds"], plan["waits"]) == (["b1"], {"b2": ["b1"], "b3": ["b1"]})
    assert plan["asks"] == "b1"
    after = engine_plan({"b1": board(has="a"), "b2": board(lacks="a"), "b3": board(without_files="a")}, [])
    assert after["builds"] == []
    assert after["takes"] == {"b1": [], "b2": [engine("a")], "b3": [engine("a")]}
    assert [entry["engine"] for entry in after["fetches"]["b1"]] == [engine("a")]  # once


def test_boards_of_other_kinds_build_side_by_side_and_what_overlaps_waits() -> None:
    plan = engine_plan({"b1": board(lacks="a"), "b2": board(lacks="b"), "b3": board(lacks="bc")}, [])
    assert (plan["builds"], plan["waits"]) == (["b1", "b2"], {"b3": ["b2"]})


@pytest.mark.parametrize("lacking", [board(lacks="a"), board(without_files="a")], ids=["files", "no files"])
def test_what_is_somewhere_is_not_built(lacking: dict[str, Any]) -> None:
    archive = {"engine": engine("a"), "key": KEY["a"], "wanted": ["a"]}
    kept = engine_plan({"b1": lacking}, [archive])
    assert (kept["builds"], kept["takes"]["b1"], kept["fetches"]["b1"], kept["asks"]) == ([], [engine("a")], [], "")
    assert kept["signs"] == {"b1": [engine("a")]}
    elsewhere = engine_plan({"b1": lacking}, [], {"b9": board(has="a")})
    assert (elsewhere["builds"], elsewhere["takes"]["b1"]) == ([], [engine("a")])
    assert [entry["from"] for entry in elsewhere["fetches"]["b1"]] == ["b9"]


def test_a_board_that_has_files_of_another_model_by_the_same_name_takes_nothing_of_it() -> None:
    other = {"wants": [{"wanted": "a", "key": KEY["b"], "engine": engine("b")}], "engines": {KEY["b"]: engine("b")}}
    assert engine_plan({"b1": board(lacks="a")}, [], {"b9": other})["builds"] == ["b1"]


def test_what_was_built_is_kept_where_that_is_asked_for() -> None:
    assert engine_plan({"b1": board(has="a")}, [], {}, ["b1"])["fetches"]["b1"][0]["engine"] == engine("a")
    there = [{"engine": engine("a"), "key": None, "wanted": []}]  # of before there were descriptions
    assert engine_plan({"b1": board(has="a")}, there, {}, ["b1"])["fetches"]["b1"] == []


def test_archives_are_known_by_their_descriptions(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{engine(name)}.archive").touch()
    (tmp_path / f"{engine('a')}.json").write_text(json.dumps({"key": KEY["a"], "wanted": ["a"]}))
    (tmp_path / "half.unfinished").touch()
    assert archives_in(tmp_path) == [
        {"engine": engine("a"), "key": KEY["a"], "wanted": ["a"]},
        {"engine": engine("b"), "key": None, "wanted": []},
    ]
    (tmp_path / f"{engine('b')}.json").write_text("{")
    with pytest.raises(AnsibleError, match="is damaged; remove it"):
        archives_in(tmp_path)


@pytest.mark.skipif(Path("/usr/local/bin/edgellm").exists(), reason="edgellm is installed on this machine")
def test_a_board_without_edgellm_says_why_it_knows_nothing() -> None:
    answer = program_output(ROLES / "engine_cache/files/engines")
    assert (answer["engines"], answer["wants"]) == ({}, [])
    assert "/usr/local/bin/edgellm" in answer["reason"]


def test_the_configuration_to_come_is_where_an_upgrade_puts_it() -> None:
    coming = HostPaths().configuration.with_name(COMING)
    assert f'COMING = "{coming}"\n' in (ROLES / "engine_cache/files/engines").read_text()
