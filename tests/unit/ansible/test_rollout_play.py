"""A rollout ends with the batch in which a board failed or was lost; played for real, where nobody listens."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

pytest.importorskip("ansible.errors", reason="needs Ansible: sh daemon/setup/run fleet")

from tests.unit.ansible.collection import COLLECTION

BOARDS = ("board1", "board2", "board3")
DEADLINE_SECONDS = 120.0
TWO_AND_ONE = {
    "hosts": "edgellm",
    "gather_facts": False,
    "serial": [2, 1],
    "tasks": [
        {"ansible.builtin.include_role": {"name": "edgellm.appliance.rollout", "tasks_from": "earlier_batches"}},
        {"ansible.builtin.command": "true"},
        {"ansible.builtin.fail": {"msg": "as it was told"}, "when": "fails | default(false)"},
        {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} was here"}},
    ],
}


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def run_play(folder: Path, playbook: str, hosts: Mapping[str, Mapping[str, object]], *options: str) -> str:
    """What Ansible says of a play that fails."""
    (folder / "ansible_collections/edgellm").mkdir(parents=True)
    (folder / "ansible_collections/edgellm/appliance").symlink_to(COLLECTION)
    (folder / "hosts.json").write_text(json.dumps({"all": {"children": {"edgellm": {"hosts": hosts}}}}))
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "-i", folder / "hosts.json", playbook, *options],
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
    hosts = {name: {"ansible_host": "127.0.0.1", "ansible_port": closed_port} for name in BOARDS}
    (tmp_path / "edgellm.whl").touch()
    said = run_play(tmp_path, f"edgellm.appliance.{playbook}", hosts, "-e", f"rollout_source={tmp_path}/edgellm.whl")
    assert f"[{BOARDS[0]}]: UNREACHABLE!" in said
    if playbook == "rollback":
        assert not [name for name in BOARDS[1:] if name in said]
    else:  # it asks all before it begins
        assert "Bring boards to another release" not in said


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_batch_of_which_one_failed_is_finished_and_no_other_begun(
    tmp_path: Path, closed_port: int, is_lost: bool
) -> None:
    here: dict[str, object] = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    lost: dict[str, object] = {"ansible_host": "127.0.0.1", "ansible_port": closed_port}
    hosts = {BOARDS[0]: lost if is_lost else {**here, "fails": True}, BOARDS[1]: here, BOARDS[2]: here}
    (tmp_path / "play.json").write_text(json.dumps([TWO_AND_ONE]))
    said = run_play(tmp_path, str(tmp_path / "play.json"), hosts)
    assert f"{BOARDS[0]} did not get through; the run stops before {BOARDS[2]} is touched" in said
    assert f"{BOARDS[1]} was here" in said
    assert f"{BOARDS[2]} was here" not in said


@pytest.mark.parametrize("file", sorted((COLLECTION / "roles/rollout/tasks").glob("*.yml")), ids=lambda file: file.stem)
def test_no_block_asks_what_its_own_tasks_change(file: Path) -> None:
    """Ansible asks a block's condition again at each task in it, also at those that are included."""
    blocks = [task for task in yaml.safe_load(file.read_text()) if "block" in task]
    changed_by_steps = ("rollout_record", "rollout_is_staged", "rollout_upgrade")
    assert [one["name"] for one in blocks if any(name in str(one.get("when", "")) for name in changed_by_steps)] == []


@pytest.mark.parametrize("playbook", ["rollout", "rollback"])
def test_a_board_that_boots_does_not_end_the_run(playbook: str) -> None:
    """Ansible counts a board that is out of reach as such an error, also where that is ignored."""
    for play in yaml.safe_load((COLLECTION / f"playbooks/{playbook}.yml").read_text()):
        assert "any_errors_fatal" not in play
