"""The example inventory and the README's own lines, as somebody who takes them word for word has them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ansible.collection import COLLECTION, ROLES, plugin

from edgellm.config import load_settings

yaml = pytest.importorskip("yaml", reason="needs Ansible: sh daemon/setup/run fleet")

EXAMPLE = COLLECTION / "inventory/example"
README = (COLLECTION / "README.md").read_text(encoding="utf-8")
PLAYBOOKS = sorted(file.stem for file in (COLLECTION / "playbooks").glob("*.yml"))
BIN = Path(sys.executable).parent
DEADLINE_SECONDS = 120.0
to_toml = plugin("filter/to_toml").to_toml
board_settings = plugin("filter/settings").board_settings


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """A home with the example as README has it copied, and the collection installed."""
    shutil.copytree(EXAMPLE, tmp_path / "fleet")
    (tmp_path / "ansible_collections/edgellm").mkdir(parents=True)
    (tmp_path / "ansible_collections/edgellm/appliance").symlink_to(COLLECTION)
    return tmp_path


def output(home: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [BIN / program, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        cwd=home / "fleet",
        env={
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(home),
            "ANSIBLE_NOCOLOR": "1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def host_variables(home: Path, *options: str) -> dict[str, dict[str, Any]]:
    listed = json.loads(output(home, "ansible-inventory", "-i", "hosts.yml", *options, "--list"))
    variables: dict[str, dict[str, Any]] = listed["_meta"]["hostvars"]
    return variables


def test_the_collection_is_whole_however_it_is_installed(tmp_path: Path) -> None:
    """Installed from its folder, links stay links; packed, they do not."""
    (line,) = re.findall(r"^ansible-galaxy (.*)$", README, re.MULTILINE)
    done = subprocess.run(
        [BIN / "ansible-galaxy", *line.split(), "--offline"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        cwd=COLLECTION.parent,
        env={"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    installed = tmp_path / ".ansible/collections/ansible_collections/edgellm/appliance/roles"
    wanted = {file.relative_to(ROLES): file.read_bytes() for file in ROLES.rglob("*") if file.is_file()}
    assert {file.relative_to(installed): file.read_bytes() for file in installed.rglob("*") if file.is_file()} == wanted


def test_preflight_asks_boards_by_the_program_that_they_are_installed_with() -> None:
    """A copy: a link out of the collection leads nowhere once that is installed."""
    installed = COLLECTION.parent / "systemd/both/usr/local/lib/edgellm/device-facts"
    assert (ROLES / "preflight/files/device-facts").read_bytes() == installed.read_bytes()
    assert [file for file in COLLECTION.rglob("*") if file.is_symlink() and ".ansible" not in file.parts] == []


def test_boards_of_both_kinds_have_variables_that_roles_know_and_a_configuration_that_is_right(control: Path) -> None:
    known = {
        name
        for role in ROLES.iterdir()
        for name in yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8"))
    }
    hosts = host_variables(control)
    assert {name.partition("-")[0] for name in hosts} == {"orin", "thor"}
    for name, variables in hosts.items():
        own = {one for one in variables if not one.startswith(("ansible_", "edgellm_settings_"))}
        assert own - known == set(), name
        file = control / f"{name}.toml"
        file.write_text(to_toml(board_settings(variables)))
        assert load_settings(file=file, environ={}).settings.models


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_playbook_reads_the_example(control: Path, playbook: str) -> None:
    assert f"edgellm.appliance.{playbook}" in README
    output(control, "ansible-playbook", "-i", "hosts.yml", "--syntax-check", f"edgellm.appliance.{playbook}")


def test_the_gateway_takes_the_authorities_that_boards_made(control: Path) -> None:
    (block,) = (
        one for one in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "gateway_board_authorities" in one
    )
    (control / "fleet/gateway.yml").write_text(block)
    authorities = control / ".cache/edgellm/fleet/authorities"
    authorities.mkdir(parents=True)
    for name in ("thor-1", "orin-1"):
        (authorities / f"{name}.crt").write_text(f"of {name}\n")
    told = output(
        control,
        *("ansible", "gateway", "-i", "hosts.yml", "-i", "gateway.yml"),
        *("-m", "ansible.builtin.debug", "-a", "var=gateway_board_authorities"),
    )
    assert '"gateway_board_authorities": "of orin-1\\nof thor-1"' in told


@pytest.mark.parametrize("role", sorted(role.name for role in ROLES.iterdir()))
def test_every_role_is_in_the_readme_and_explained_by_ansible_doc(control: Path, role: str) -> None:
    assert f"| `{role}` |" in README
    said = output(control, "ansible-doc", "--type", "role", f"edgellm.appliance.{role}")
    assert set(yaml.safe_load((ROLES / role / "defaults/main.yml").read_text(encoding="utf-8"))) <= set(
        re.findall(r"\w+", said)
    )
