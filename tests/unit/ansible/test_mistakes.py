"""What a person gets wrong on the control host is told in a line, before any board is asked for anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

pytest.importorskip("ansible.errors", reason="needs Ansible: sh daemon/setup/run fleet")

from tests.unit.ansible.collection import COLLECTION, ROLES, plugin

PLAYBOOKS = sorted(file.stem for file in (COLLECTION / "playbooks").glob("*.yml"))
GROUPS = {"gateway": "gateway", "observability": "observability"}  # the others: edgellm
DEADLINE_SECONDS = 120.0
FAILED = 2
# Nothing listens there; a board that is asked for something would be out of reach.
NOWHERE = {"ansible_host": "127.0.0.1", "ansible_port": 9}
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
variables = plugin("filter/variables")
wheel_set = plugin("lookup/wheel_set")


def fail(folder: Path, playbook: str, inventory: Mapping[str, object] | None, *options: str) -> str:
    """What a playbook says that ends with a failed host."""
    (folder / "ansible_collections/edgellm").mkdir(parents=True)
    (folder / "ansible_collections/edgellm/appliance").symlink_to(COLLECTION)
    chosen: Sequence[str | Path] = ()
    if inventory is not None:
        (folder / "hosts.json").write_text(json.dumps({"all": {"children": inventory}}))
        chosen = ("-i", folder / "hosts.json")
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", *chosen, f"edgellm.appliance.{playbook}", *options],
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
    assert done.returncode == FAILED, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_playbook_looks_at_inventory_and_variables_first(playbook: str) -> None:
    play, *more = yaml.safe_load((COLLECTION / f"playbooks/{playbook}.yml").read_text())
    first, group = play["tasks"][0], GROUPS.get(playbook, "edgellm")
    looks = {"name": "edgellm.appliance.preflight", "tasks_from": "inventory"}
    assert (first["ansible.builtin.import_role"], first["vars"]) == (looks, {"preflight_group": group})
    assert (first["tags"], play["gather_facts"]) == (["always"], False)
    assert {one["hosts"] for one in (play, *more)} == {f"{{{{ groups['{group}'] | default(['localhost'], true) }}}}"}


@pytest.mark.parametrize("playbook", ["gateway", "rollout"])
def test_a_playbook_without_hosts_says_so(tmp_path: Path, playbook: str) -> None:
    group = GROUPS.get(playbook, "edgellm")
    assert f"the inventory has no host in the group {group}" in fail(tmp_path, playbook, None)


def test_the_inventory_that_was_read_is_named(tmp_path: Path) -> None:
    said = fail(tmp_path, "provision", {"edgelm": {"hosts": {"board1": NOWHERE}}})
    assert f"no host in the group edgellm; -i names an inventory, such as -i hosts.yml, read were: {tmp_path}" in said


def test_a_misspelt_variable_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    hosts = {"edgellm": {"hosts": {"host1": {**NOWHERE, "edgelm_mode": "venv"}}}}
    said = fail(tmp_path, "rollout", hosts, "-e", "rollout_surce=x")
    assert "edgelm_mode is no variable of a role; did you mean edgellm_mode?" in said
    assert "rollout_surce is no variable of a role; did you mean rollout_source?" in said
    assert "UNREACHABLE" not in said


def test_a_variable_of_the_inventory_s_own_can_be_named() -> None:
    assert variables.variable_mistakes(["device_serial_number"]) == ["device_serial_number is no variable of a role"]
    assert variables.variable_mistakes(["device_serial_number"], ["device_serial_number"]) == []
    assert variables.variable_mistakes(["rack", "vault_front_desk_key", "ansible_user", "group_names"]) == []


def test_what_the_readme_names_can_be_set() -> None:
    roles = "|".join(role.name for role in ROLES.iterdir())
    named = set(re.findall(rf"\b((?:{roles})_\w+)", (COLLECTION / "README.md").read_text(encoding="utf-8")))
    assert {"rollout_batches", "gateway_board_tls_name", "edgellm_api_keys"} <= named
    assert named - {"gateway_board"} <= variables.settable_variables()  # that one is a module


def test_what_roles_make_for_themselves_is_no_mistake() -> None:
    made = {"edgellm_configuration", "edgellm_opt", "rollout_record", "preflight_facts", "engine_cache_folder"}
    assert made <= variables.known_variables()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "edgellm_image, edgellm_image_archive: edgellm_mode container needs one of them"),
        ({"edgellm_mode": "docker"}, "must be one of: container, venv, got: docker"),
        ({"edgellm_image": "r.example/e:1"}, "edgellm_image: must have its digest"),
        ({"edgellm_image_archive": "/a.tar", "edgellm_image_archive_sha256": "ab"}, "the archive's SHA-256"),
        (
            {"edgellm_image_archive": "/nowhere/a.tar", "edgellm_image_archive_sha256": "0" * 64},
            "edgellm_image_archive: /nowhere/a.tar is not on the control host",
        ),
        ({"edgellm_mode": "venv"}, "edgellm_wheels: edgellm_mode venv needs a folder of wheels on the control host"),
        (
            {"edgellm_mode": "venv", "edgellm_wheels": "/nowhere"},
            "edgellm_wheels: /nowhere is no folder on the control host",
        ),
    ],
)
def test_what_cannot_be_installed_is_refused_in_a_line_of_its_own(
    tmp_path: Path, given: Mapping[str, object], said: str
) -> None:
    hosts = {"edgellm": {"hosts": {"board1": {**HERE, **given}}}}
    told = fail(tmp_path, "provision", hosts, "--check", "--tags", "edgellm")
    assert said in told
    assert "board1 : ok=" in told
    assert "changed=0" in told


def test_an_archive_of_another_digest_is_named_with_both(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    archive.write_bytes(b"")
    given = {"edgellm_image_archive": str(archive), "edgellm_image_archive_sha256": "0" * 64}
    told = fail(tmp_path, "provision", {"edgellm": {"hosts": {"board1": {**HERE, **given}}}}, "--tags", "edgellm")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert f"{archive} has the SHA-256 {empty}, and edgellm_image_archive_sha256 is {'0' * 64}" in told


@pytest.mark.parametrize(
    ("wheel", "python", "architecture"),
    [
        ("edgellm-0.1.0-cp312-cp312-linux_aarch64.whl", "3.12", "aarch64"),
        ("edgellm-0.1.0-cp311-abi3-manylinux_2_28_x86_64.whl", "", "x86_64"),
        ("edgellm-0.1.0-py3-none-any.whl", "", ""),
    ],
)
def test_a_release_says_what_machines_it_is_for(tmp_path: Path, wheel: str, python: str, architecture: str) -> None:
    (tmp_path / wheel).touch()
    release = wheel_set.release_of(tmp_path)
    assert (release["wheel"], release["python"], release["architecture"]) == (wheel, python, architecture)
