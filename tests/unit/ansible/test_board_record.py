"""How far a board is stands on the control host whole, or as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ansible.errors", reason="needs Ansible: sh daemon/setup/run fleet")

from tests.unit.ansible.collection import plugin

write_whole = plugin("action/board_record").write_whole


def test_a_record_is_for_its_owner_alone_and_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "board.json"
    for outcome in ("under way", "done"):
        record = {"outcome": outcome, "steps": [{"step": "staged", "state": "done"}], "report": None}
        write_whole(file, record)
        assert json.loads(file.read_text()) == record
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_record_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "board.json"
    write_whole(file, {"outcome": "under way"})
    with pytest.raises(TypeError):
        write_whole(file, {"outcome": "done", "report": object()})
    assert json.loads(file.read_text()) == {"outcome": "under way"}
    assert list(tmp_path.iterdir()) == [file]
