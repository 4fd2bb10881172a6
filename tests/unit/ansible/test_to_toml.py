"""A configuration as edgellm reads it is what the variable holds."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ansible.collection import plugin

from edgellm.config import load_settings

to_toml = plugin("filter/to_toml").to_toml

SETTINGS: dict[str, Any] = {
    "cache_dir": "/var/lib/edgellm",
    "server": {
        "host": "0.0.0.0",
        "port": 8001,
        "cors_origins": ["https://a.example"],
        "api_keys_file": None,
    },
    "admission": {"queue_timeout_seconds": 12.5},
    "models": [
        {"source": "ORG/NAME", "required": False, "sampling": {"temperature": 0.2}},
        {"source": "./päth\\with\nlines", "aliases": []},
    ],
}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def test_what_is_written_reads_as_what_it_was() -> None:
    assert tomllib.loads(to_toml(SETTINGS)) == without_nulls(SETTINGS)


def test_edgellm_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "edgellm.toml"
    file.write_text(to_toml(SETTINGS | {"models": SETTINGS["models"][:1]}))
    settings = load_settings(file=file, environ={}).settings
    assert settings.server.port == 8001
    assert settings.models[0].sampling.temperature == 0.2


@pytest.mark.parametrize("value", [object(), [["nested"]], {"a": {1, 2}}])
def test_what_has_no_place_in_a_configuration_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"edgellm_settings: server\.odd"):
        to_toml({"server": {"odd": value}})
