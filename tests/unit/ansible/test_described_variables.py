"""Every variable of a role is described, with the default that it has, and those that are secret are marked so."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.unit.ansible.collection import ROLES

from edgellm.config.settings import Settings

yaml = pytest.importorskip("yaml", reason="needs Ansible: sh daemon/setup/run fleet")

NAMES = sorted(role.name for role in ROLES.iterdir() if role.is_dir())
# A key or what stands for one; not where one lies, and not keys that everybody may read.
SECRET = re.compile(r"_(key|keys|token|password|password_hash)$")
NO_SECRET = {"engine_cache_signing_key": "a path", "engine_cache_trusted_keys": "public"}


def read(role: str, file: str) -> Any:
    return yaml.safe_load((ROLES / role / file).read_text(encoding="utf-8"))


def options(role: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    return found


@pytest.mark.parametrize("role", NAMES)
def test_every_variable_is_described_with_its_default(role: str) -> None:
    defaults, described = read(role, "defaults/main.yml"), options(role)
    assert set(described) == set(defaults)
    told = {name: option["default"] for name, option in described.items() if "default" in option}
    assert told == {name: defaults[name] for name in told}
    assert all(option["description"] for option in described.values())


def test_the_gateway_waits_as_long_as_a_board_s_queue() -> None:
    assert read("gateway", "defaults/main.yml")["gateway_queue_timeout_seconds"] >= (
        Settings().admission.queue_timeout_seconds
    )


def test_every_secret_is_marked() -> None:
    secrets = [
        (name, option)
        for role in NAMES
        for name, option in options(role).items()
        if SECRET.search(name) and name not in NO_SECRET
    ]
    assert len(secrets) > len(NO_SECRET)
    assert [name for name, option in secrets if not option.get("no_log")] == []


@pytest.mark.parametrize("role", NAMES)
def test_numbers_and_switches_are_taken_as_text_too(role: str) -> None:
    """``-e name=value`` gives text: "false" would be true, and a number that is compared with it an error."""
    typed = {name: option["type"] for name, option in options(role).items() if option["type"] in ("int", "bool")}
    files = [file for part in ("tasks", "handlers", "templates", "vars") for file in (ROLES / role / part).rglob("*.*")]
    wrong = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        # Where it is written out as it is, it may be text.
        text = re.sub(r"\{\{ (\w+|[^{}]*default\(\w+\)) \}\}", "", text)
        for name, kind in typed.items():
            converted = r"\s*\|\s*(int|float)\b" if kind == "int" else r"\s*\|\s*bool\b"
            wrong += [f"{file.name}: {name}" for _ in re.finditer(rf"\b{name}\b(?!{converted}|:)", text)]
    assert wrong == []
