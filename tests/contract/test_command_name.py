"""Our command is ours: NVIDIA announces one of the same name for later releases."""

from __future__ import annotations

from configparser import ConfigParser
from importlib.metadata import entry_points

from tests.contract.nvidia_binary import NvidiaBinary


def test_no_installed_package_but_ours_claims_the_command() -> None:
    claims = [entry.dist.name for entry in entry_points(group="console_scripts", name="edgellm") if entry.dist]
    assert set(claims) == {"edgellm"}


def test_the_pinned_release_of_nvidia_leaves_the_command_to_us(nvidia_binary: NvidiaBinary) -> None:
    commands = ConfigParser()
    commands.read_string(nvidia_binary.commands)
    names = set(commands["console_scripts"])
    assert "tensorrt-edgellm-serve" in names
    assert "edgellm" not in names
