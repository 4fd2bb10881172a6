"""A rollout whose first board is out of reach goes to no other: played for real, with boards where nobody listens."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("ansible", reason="needs Ansible: sh daemon/setup/run fleet")

from tests.unit.ansible.collection import COLLECTION

BOARDS = ("board1", "board2", "board3")
DEADLINE_SECONDS = 120.0


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def played(folder: Path, playbook: str, port: int) -> str:
    (folder / "ansible_collections/edgellm").mkdir(parents=True)
    (folder / "ansible_collections/edgellm/appliance").symlink_to(COLLECTION)
    hosts = {name: {"ansible_host": "127.0.0.1", "ansible_port": port} for name in BOARDS}
    (folder / "hosts.json").write_text(json.dumps({"all": {"children": {"edgellm": {"hosts": hosts}}}}))
    (folder / "edgellm.whl").touch()
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [
            program,
            "-i",
            folder / "hosts.json",
            f"edgellm.appliance.{playbook}",
            "-e",
            f"rollout_source={folder}/edgellm.whl",
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(folder),
            "ANSIBLE_NOCOLOR": "1",
        },
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")
@pytest.mark.parametrize("playbook", ["rollout", "rollback"])
def test_a_board_out_of_reach_stops_the_run_before_the_next_one(
    tmp_path: Path, closed_port: int, playbook: str
) -> None:
    said = played(tmp_path, playbook, closed_port)
    assert f"[{BOARDS[0]}]: UNREACHABLE!" in said
    assert not [name for name in BOARDS[1:] if name in said]


@pytest.mark.parametrize("playbook", ["rollout", "rollback"])
def test_a_board_that_boots_does_not_end_the_run(playbook: str) -> None:
    """Ansible counts a board that is out of reach as such an error, also where that is ignored."""
    (play,) = yaml.safe_load((COLLECTION / f"playbooks/{playbook}.yml").read_text())
    assert "any_errors_fatal" not in play
