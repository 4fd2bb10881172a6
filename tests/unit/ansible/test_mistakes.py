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

from edgellm.errors import ConfigError
from edgellm.service.api_keys import read_keys

PLAYBOOKS = sorted(file.stem for file in (COLLECTION / "playbooks").glob("*.yml"))
GROUPS = {"gateway": "gateway", "observability": "observability"}  # the others: edgellm
DEADLINE_SECONDS = 120.0
FAILED = 2
# Nothing listens there; a board that is asked for something would be out of reach.
NOWHERE = {"ansible_host": "127.0.0.1", "ansible_port": 9}
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
variables = plugin("plugin_utils/variables")
settings = plugin("filter/settings")
api_keys = plugin("filter/api_keys")
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
    # The first play of provision finds out which boards are to be started anew.
    assert {one["hosts"] for one in (play, *more)} - {"edgellm_to_restart"} == {
        f"{{{{ groups['{group}'] | default(['localhost'], true) }}}}"
    }


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
    parts = {name for name in named if variables.SETTINGS_PART.fullmatch(name)}
    assert named - {"gateway_board"} - parts <= variables.settable_variables()  # the first is a module


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


def words_of_roles() -> list[tuple[str, list[str]]]:
    """Variables that are a word, with their choices."""
    described = variables.described_options()
    return [
        (name, option.get("choices") or []) for name, option in described.items() if option["type"] in ("str", "path")
    ]


@pytest.mark.parametrize(
    ("name", "choices"), words_of_roles(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_word_that_yaml_took_for_a_switch_is_refused_with_what_to_write(name: str, choices: list[str]) -> None:
    (said,) = variables.value_mistakes({name: False})
    assert said.startswith(f"{name}: YAML has read a bare word as false")
    assert f'write "{"off" if "off" in choices else "no" if "no" in choices else "off"}"' in said
    assert variables.value_mistakes({name: "off"}) == []
    assert variables.value_mistakes({name: "{{ whatever }}"}) == []


def test_words_within_lists_and_rows_and_numbers_are_told_too() -> None:
    given = {
        "edgellm_api_keys": [{"name": True, "key": "of sixteen letters"}],
        "gateway_names": ["llm.example.org", False],
        "preflight_python_min": 3.10,
        "device_power_mode": 0,
        "edgellm_mdns": False,
    }
    said = variables.value_mistakes(given)
    assert [line.partition(":")[0] for line in said] == [
        "edgellm_api_keys, row 1, name",
        "gateway_names, row 2",
        "preflight_python_min",
    ]
    assert '"3.1"' in said[2]


def test_what_yaml_made_of_words_is_told_before_any_board_is_asked(tmp_path: Path) -> None:
    given = {"edgellm_tls": False, "edgellm_gpu": False, "device_desktop": False}
    said = fail(tmp_path, "provision", {"edgellm": {"hosts": {"board1": {**NOWHERE, **given}}}})
    for name, word in (("edgellm_tls", "off"), ("edgellm_gpu", "no"), ("device_desktop", "off")):
        assert (
            f'{name}: YAML has read a bare word as false, and a word is wanted: write "{word}" with its quotes' in said
        )
    assert "UNREACHABLE" not in said


def test_settings_of_two_groups_are_refused_with_both_named_and_parts_are_laid_over_each_other(tmp_path: Path) -> None:
    settings = {"server": {"host": "0.0.0.0", "port": 8001}}
    hosts = {"board1": NOWHERE}
    inventory = {
        "edgellm": {"children": {"orin": {"hosts": hosts}}, "vars": {"edgellm_settings": settings}},
        "orin": {"vars": {"edgellm_settings_b": {"models": []}}},
    }
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/orin.yml").write_text("edgellm_settings: {models: []}\n")
    said = fail(tmp_path, "provision", inventory)
    assert "edgellm_settings is set by edgellm and by orin, of which one alone would hold" in said
    assert "such as edgellm_settings_orin" in said


def test_parts_of_settings_are_laid_over_it_by_key_in_the_order_of_their_names() -> None:
    parts = {
        "edgellm_settings": {"server": {"host": "0.0.0.0", "port": 8000}, "models": [{"source": "a"}]},
        "edgellm_settings_b": {"server": {"port": 8002}, "models": [{"source": "b"}]},
        "edgellm_settings_a": {"server": {"port": 8001, "unknown_fields": "ignore"}},
    }
    wanted = {"server": {"host": "0.0.0.0", "port": 8002, "unknown_fields": "ignore"}, "models": [{"source": "b"}]}
    assert settings.board_settings(parts) == wanted
    assert settings.board_settings({}) == {}
    assert settings.board_port(parts, 8000) == 8002
    assert settings.board_port({**parts, "edgellm_port": "8003"}, 8000) == 8003
    assert settings.board_port({**parts, "edgellm_port": 8003, "gateway_board_port": 443}, 8000) == 443
    assert settings.board_port({}, 9000) == 9000


KEY = "sixteen-letters-or-more"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("till", KEY), ("till", KEY[:16]), ("till", KEY[:15]), ("till", "short"), ("front desk", KEY), ("", KEY)),
        *(("-till", KEY), ("t" * 64, KEY), ("t" * 65, KEY), ("till", f"{KEY} x"), ("till", f"{KEY}\u00e9")),
        *(("till", f"{KEY}\t"), ("t.i_l-l", KEY), ("till:x", KEY)),
    ],
)
def test_keys_are_refused_that_edgellm_refuses_and_no_others(tmp_path: Path, name: str, key: str) -> None:
    """The rule of the control host is that of the server, which on boards sees hashes alone."""
    file = tmp_path / "keys"
    file.write_text(f"{name}:{key}\n".replace("\t\n", "\t|\n"))
    file.chmod(0o600)
    try:
        server_takes_it = bool(read_keys(file))
    except ConfigError:
        server_takes_it = False
    said = api_keys.api_key_mistakes([{"name": name, "key": key}])
    assert (said == []) == (server_takes_it and ":" not in name)
    assert key not in " ".join(said)


def test_names_that_are_there_twice_are_told() -> None:
    rows = [{"name": "till", "key": KEY}, {"name": "till", "key": KEY}]
    assert api_keys.api_key_mistakes(rows) == ["edgellm_api_keys: till is there 2 times; give each client its own name"]
    assert api_keys.api_key_mistakes([], ["front desk"]) == [
        "edgellm_clients: front desk: a client's name has up to 64 letters, digits, dots, dashes and underscores"
    ]
