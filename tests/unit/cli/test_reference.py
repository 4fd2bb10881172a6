"""The reference pages are what the code says now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgellm.cli.example_config import example_toml
from edgellm.cli.reference import EXAMPLE_CONFIG, pages
from edgellm.config.load import LoadedSettings, load_settings

FOLDER = Path(__file__).resolve().parents[3] / "daemon" / "reference"


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_committed_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == pages()[name], "run: make reference"


def test_the_example_in_the_reference_is_a_right_configuration(tmp_path: Path) -> None:
    example = pages()["config.md"].partition("```toml\n")[2].partition("```")[0]
    file = tmp_path / "edgellm.toml"
    file.write_text(example)
    loaded: LoadedSettings = load_settings(file=file, environ={})
    assert loaded.settings.models[0].sampling.temperature == 0.2


def test_the_configuration_file_of_devices_is_current() -> None:
    assert EXAMPLE_CONFIG.read_text(encoding="utf-8") == example_toml(), "run: make reference"


def test_the_configuration_file_of_devices_sets_little_and_shows_right_values(tmp_path: Path) -> None:
    file = tmp_path / "edgellm.toml"
    file.write_text(example_toml())
    assert set(load_settings(file=file, environ={}).origins) == {"cache_dir"}
    shown = [
        line.removeprefix("#") if re.match(r"#(\w+ = |\[)", line) else line for line in example_toml().splitlines()
    ]
    file.write_text("\n".join(shown))
    settings = load_settings(file=file, environ={}).settings
    assert settings.models[0].source == "smollm2-135m-instruct"
    unchanged = load_settings(environ={"XDG_CONFIG_HOME": str(tmp_path)}).settings
    assert settings.admission == unchanged.admission
    assert settings.workers == unchanged.workers
