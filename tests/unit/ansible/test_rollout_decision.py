"""What a rollout or a rollback does with a board, by what was written down and what the board says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible.errors", reason="needs Ansible: sh daemon/setup/run fleet")

from ansible.errors import AnsibleError, AnsibleFilterError
from tests.unit.ansible.collection import plugin

decision = plugin("filter/rollout_decision").rollout_decision
records_in = plugin("lookup/board_records").records_in
PLAY = ["board1", "board2", "board3"]
OLD, NEW, OTHER = ({"id": f"{version}-{version[-1] * 12}", "version": version} for version in ("1.0", "1.1", "1.2"))
RELEASE = "sha256:release"


def record(board: str, time: str = "2026-11-30T10:00:00", **changes: Any) -> dict[str, Any]:
    """Of a rollout of RELEASE that came through, from OLD to NEW."""
    own: dict[str, Any] = {
        "wanted": RELEASE,
        "undoes": "",
        "is_rollback": False,
        "ticket": f"{time} {board}",
        "was": OLD["id"],
        "release": NEW["id"],
        "outcome": "done",
        "steps": [{"step": "back_in", "state": "done"}],
    }
    return {**own, **changes}


def decide(
    records: dict[str, Any], board: str, current: dict[str, str], wanted: str = "", **how: Any
) -> dict[str, Any]:
    chosen: dict[str, Any] = decision(records, board, current, wanted, "2026-11-30T12:00:00", PLAY, **how)
    return chosen


def test_a_release_goes_out_once() -> None:
    first = decide({}, "board1", OLD, RELEASE)
    assert (first["does"], first["record"]["was"], first["record"]["steps"]) == ("goes", OLD["id"], [])
    assert decide({"board1": record("board1")}, "board1", NEW, RELEASE)["does"] == "stays"
    assert decide({"board1": record("board1")}, "board1", OLD, RELEASE)["does"] == "goes"  # somebody took it back
    begun = record("board1", outcome="under way", release="")
    again = decide({"board1": begun}, "board1", OLD, RELEASE)
    assert (again["does"], again["record"]) == ("goes", begun)


def test_what_another_run_began_ends_first() -> None:
    begun = {"board1": record("board1", outcome="under way", release="")}
    assert decide(begun, "board1", OLD, "sha256:other")["does"] == "settles"
    settled = decide(begun, "board1", NEW, "sha256:other", is_settled=True)
    assert (settled["does"], settled["record"]["was"]) == ("goes", NEW["id"])


def test_a_rollback_leaves_boards_alone_that_were_not_in_the_rollout() -> None:
    """Also those that went to the release of before in a rollout of their own."""
    records = {
        "board1": record("board1", "2026-11-30T11:00:00"),
        "board2": record("board2", wanted="sha256:before", was="0.9-999999999999", release=OLD["id"]),
    }
    back = decide(records, "board1", NEW, is_rollback=True)
    assert (back["does"], back["release"], back["record"]["undoes"]) == ("goes", OLD["id"], RELEASE)
    for board in ("board2", "board3"):
        other = decide(records, board, OLD, is_rollback=True)
        assert (other["does"], other["said"]) == ("stays", f"was not in the rollout of {RELEASE}: {OLD['id']} stays")
    assert decide(records, "board1", OTHER, is_rollback=True)["does"] == "stays"  # brought by hand since


def test_a_rollback_that_was_cut_short_goes_on_and_one_that_ended_stays() -> None:
    back = {"undoes": RELEASE, "is_rollback": True, "wanted": OLD["id"], "was": NEW["id"]}
    records = {
        "board1": record("board1", "2026-11-30T11:00:00", **back, release=OLD["id"]),
        "board2": record("board2", "2026-11-30T11:00:01", **back, release="", outcome="under way"),
        "board3": record("board3"),
    }
    assert decide(records, "board1", OLD, is_rollback=True)["does"] == "stays"
    going = decide(records, "board2", NEW, is_rollback=True)
    assert (going["does"], going["record"]) == ("goes", records["board2"])
    assert decide(records, "board3", NEW, is_rollback=True)["does"] == "goes"


@pytest.mark.parametrize(("serves", "does"), [(OLD, "returns"), (NEW, "goes")])
def test_a_rollback_of_a_rollout_that_was_cut_short_undoes_it(serves: dict[str, str], does: str) -> None:
    records = {"board1": record("board1", outcome="under way", release="")}
    assert decide(records, "board1", serves, is_rollback=True)["does"] == "settles"
    settled = decide(records, "board1", serves, is_rollback=True, is_settled=True)
    assert (settled["does"], settled["release"]) == (does, OLD["id"])
    assert settled["record"]["undoes"] == RELEASE


def test_a_board_that_returned_by_itself_stays() -> None:
    failed = {"board1": record("board1", outcome="failed", release="")}
    assert decide(failed, "board1", OLD, is_rollback=True)["does"] == "stays"
    assert (
        decide(failed, "board1", NEW, is_rollback=True)["does"] == "goes"
    )  # it serves, and the gateway did not see it


def test_a_release_that_is_named_goes_to_every_board() -> None:
    for board in PLAY:
        named = decide({"board1": record("board1")}, board, NEW, "1.0", is_rollback=True)
        assert (named["does"], named["release"]) == ("goes", "1.0")
    assert decide({}, "board1", OLD, "1.0", is_rollback=True)["does"] == "stays"


def test_without_a_record_the_release_must_be_named() -> None:
    with pytest.raises(AnsibleFilterError, match="-e rollout_release="):
        decide({"a-board-of-another-play": record("x")}, "board1", OLD, is_rollback=True)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "board1.json").write_text(json.dumps(record("board1")))
    assert records_in(tmp_path)["board1"]["wanted"] == RELEASE
    (tmp_path / "board2.json").write_text('{"wanted": ')
    with pytest.raises(AnsibleError, match=r"board2\.json is damaged"):
        records_in(tmp_path)
    assert records_in(tmp_path / "none") == {}
