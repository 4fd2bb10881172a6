"""The collection's README word for word on bare boards: first what people get wrong, then the ten-minute fleet."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from tests.fleet.control_host import (
    ANSIBLE,
    BIN,
    FAILED,
    PLAYBOOK_DEADLINE_SECONDS,
    UNREACHABLE,
    USER,
    ControlHost,
    Played,
)
from tests.fleet.fleet import MODEL, SETTINGS, made_by_roles
from tests.lab.bridge import INTERFACE, Bridge
from tests.lab.device import Device
from tests.lab.wheels import CHECKOUT
from tests.service.conftest import Say

pytestmark = pytest.mark.thorough
README = (CHECKOUT / "ansible/README.md").read_text(encoding="utf-8")
SECTION = README.partition("## The first fleet, in ten minutes")[2].partition("\n## ")[0]
INSTALL, PROVISION, ASK = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
# Of the example: the network of its addresses, and what the control host has there.
GATEWAY, PREFIX_BITS = "192.0.2.1", 24
VAULT_PASSWORD, VAULT_KEY = "a-password-of-the-vault", "planted-key-of-the-vault-91b2"


class Newcomer:
    """Somebody with a checkout, Ansible and a user on three bare boards; types what the README says."""

    def __init__(self, folder: Path, bridge: Bridge) -> None:
        self.control = ControlHost(folder, bridge)
        self._bridge = bridge
        self.home = self.control.home
        shutil.copytree(CHECKOUT / "ansible", self.home / "checkout/ansible", ignore=shutil.ignore_patterns(".ansible"))
        programs = self.home / "bin"
        programs.mkdir()
        # The user's own key; and "yes" to the question whether a host key is the right one.
        options = (
            f"-i {self.control.key} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=accept-new"
            f" -o UserKnownHostsFile={self.home}/known_hosts"
        )
        (programs / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F none {options} "$@"\n')
        (programs / "ssh").chmod(0o755)
        self._environ = {
            "PATH": f"{programs}:{ANSIBLE}:{BIN}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_NOCOLOR": "1",
        }
        self.folder = self.home / "checkout"

    def types(self, lines: str, **environ: str) -> Played:
        done = subprocess.run(
            [*self._bridge.enter(), "bash", "-e", "-c", lines],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env={**self._environ, **environ},
            timeout=PLAYBOOK_DEADLINE_SECONDS,
            check=False,
        )
        return Played(done.returncode, done.stdout, 0.0)

    def edits(self, file: str, *removed: str, **changes: object) -> None:
        path = self.folder / file
        values = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**{k: v for k, v in values.items() if k not in removed}, **changes}))


def addresses_of_the_example() -> Mapping[str, str]:
    hosts = (CHECKOUT / "ansible/inventory/example/hosts.yml").read_text()
    return dict(re.findall(r"^ +(\S+):\n +ansible_host: (\S+)$", hosts, re.MULTILINE))


@pytest.fixture(scope="module")
def three_boards(
    fleet_rootfs: Path, fleet_folder: Path, bridge: Bridge, model_folder: Path
) -> Iterator[tuple[Newcomer, dict[str, Device]]]:
    """Of the names and at the addresses of the example; all are of one kind here. The first has the model."""
    newcomer = Newcomer(fleet_folder / "newcomer", bridge)
    made: dict[str, Device] = {}
    subprocess.run([*bridge.enter(), "ip", "address", "add", f"{GATEWAY}/{PREFIX_BITS}", "dev", INTERFACE], check=True)
    try:
        for name, address in addresses_of_the_example().items():
            model = {f"/var/lib/edgellm/models/{model_folder.name}": model_folder} if not made else {}
            device = Device(name, fleet_folder / name, fleet_rootfs, read_only=model, bridge=bridge)
            made[name] = newcomer.control.admit(device).boot()
            device.run("ip", "address", "add", f"{address}/{PREFIX_BITS}", "dev", "host0")
        yield newcomer, made
    finally:
        for device in made.values():
            device.remove()
        subprocess.run(
            [*bridge.enter(), "ip", "address", "delete", f"{GATEWAY}/{PREFIX_BITS}", "dev", INTERFACE], check=False
        )


@pytest.fixture(scope="module")
def newcomer(three_boards: tuple[Newcomer, dict[str, Device]], wheels: Path) -> Newcomer:
    """With the collection installed and the example edited for boards that are no Jetsons."""
    one, _ = three_boards
    installed = one.types(INSTALL)
    assert installed.code == 0, installed.output
    one.folder = one.home / "checkout/fleet"
    one.edits(
        "group_vars/edgellm/boards.yml",
        "edgellm_image_archive",
        "edgellm_image_archive_sha256",
        edgellm_mode="venv",
        edgellm_wheels=str(wheels),
        preflight_board_required=False,
        preflight_disk_free_min_mib=512,
        edgellm_settings={"server": SETTINGS["server"]},
    )
    for kind in ("orin", "thor"):
        one.edits(f"group_vars/{kind}.yml", edgellm_settings_models={"models": SETTINGS["models"]})
    known = one.types("\n".join(f"ssh {USER}@{address} true" for address in addresses_of_the_example().values()))
    assert known.code == 0, known.output
    return one


PLAY = "ansible-playbook -i hosts.yml edgellm.appliance.provision"
BY_TAG = {"edgellm_mode": "container", "edgellm_image": "r.example/edgellm:1", "preflight_tolerated": ["podman"]}
TWO_KINDS_OF_KEYS = {"edgellm_api_keys": [{"name": "front-desk", "key": "of all boards"}]}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("ansible-playbook edgellm.appliance.provision", "the inventory has no host in the group edgellm"),
        (f"{PLAY} -e edgelm_mode=venv", "edgelm_mode is no variable of a role; did you mean edgellm_mode?"),
        (f"{PLAY} -e ansible_user=nobody", "nobody@192.0.2.11: Permission denied (publickey"),
        (f"{PLAY} -e preflight_disk_free_min_mib=900000000", "disk: found"),
        (f"{PLAY} -e preflight_board_required=true", "board: found no Jetson"),
        (f"{PLAY} -e edgellm_wheels=/srv/wheels", "edgellm_wheels: /srv/wheels is no folder on the control host"),
        (f"{PLAY} -e '{json.dumps(BY_TAG)}'", "edgellm_image: must have its digest"),
        (f"{PLAY} -e '{json.dumps(TWO_KINDS_OF_KEYS)}'", "edgellm_api_keys and edgellm_clients exclude each other"),
    ],
    ids=["inventory", "misspelt", "user", "space", "board", "wheels", "digest", "keys"],
)
def test_a_mistake_is_told_and_no_board_is_touched(
    newcomer: Newcomer, three_boards: tuple[Newcomer, dict[str, Device]], typed: str, said: str
) -> None:
    _, devices = three_boards
    played = newcomer.types(typed)
    assert played.code in (FAILED, UNREACHABLE)
    assert said in " ".join(played.output.split())
    assert "Traceback" not in played.output
    assert {row.changed for row in played.recap.values()} == {0}
    assert {made_by_roles(device) for device in devices.values()} == {""}


def test_a_user_without_sudo_is_told_so(newcomer: Newcomer, three_boards: tuple[Newcomer, dict[str, Device]]) -> None:
    _, devices = three_boards
    rights = devices["orin-2"].root / f"etc/sudoers.d/{USER}"
    kept = rights.read_text()
    rights.unlink()
    try:
        played = newcomer.types(f"{PLAY} --limit orin-2")
    finally:
        rights.write_text(kept)
        rights.chmod(0o440)
    assert played.code in (FAILED, UNREACHABLE)
    assert "Missing sudo password" in played.output
    assert played.recap["orin-2"].changed == 0


def test_the_first_fleet_word_for_word(
    newcomer: Newcomer, three_boards: tuple[Newcomer, dict[str, Device]], say: Say
) -> None:
    played = newcomer.types(PROVISION)
    assert played.code == 0, played.output[-6000:]
    for name in addresses_of_the_example():
        assert played.table_row(name)["ready"] == "yes"
    asked = newcomer.types(ASK)
    assert asked.code == 0, asked.output
    assert MODEL in asked.output
    again = newcomer.types(PLAY)
    assert again.code == 0, again.output[-6000:]
    assert {row.changed for row in again.recap.values()} == {0}, again.changed_tasks


def test_keys_of_the_whole_fleet_come_from_a_vault(newcomer: Newcomer) -> None:
    """After the one before, as an operator who goes on: by an editor and a password, as ``ansible-vault`` asks."""
    password, editor = newcomer.home / "password", newcomer.home / "editor"
    password.write_text(f"{VAULT_PASSWORD}\n")
    editor.write_text(f'#!/bin/sh\necho "vault_front_desk_key: {VAULT_KEY}" >"$1"\n')
    editor.chmod(0o755)
    secret = {"ANSIBLE_VAULT_PASSWORD_FILE": str(password), "EDITOR": str(editor)}
    (create,) = re.findall(r"`(ansible-vault create [^`]*)`", SECTION)
    made = newcomer.types(f"script --quiet --return --command '{create}' /dev/null", **secret)  # it wants a terminal
    assert made.code == 0, made.output
    assert VAULT_KEY not in (newcomer.folder / create.split()[-1]).read_text()
    given = [{"name": "front-desk", "key": "{{ vault_front_desk_key }}"}]
    newcomer.edits("group_vars/edgellm/boards.yml", "edgellm_clients", edgellm_api_keys=given)
    refused = newcomer.types(PLAY)
    assert (refused.code != 0, refused.recap) == (True, {})
    assert "no vault secrets" in refused.output.lower()
    played = newcomer.types(f"{PLAY} -vvv", **secret)
    assert played.code == 0, played.output[-6000:]
    assert VAULT_KEY not in played.output
    for name, address in addresses_of_the_example().items():
        authority = newcomer.home / f".cache/edgellm/fleet/authorities/{name}.crt"
        asked = newcomer.types(
            f"curl --silent --fail --cacert {authority} -H 'Authorization: Bearer {VAULT_KEY}'"
            f" https://{address}:8000/v1/models"
        )
        assert asked.code == 0, asked.output
