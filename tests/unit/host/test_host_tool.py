"""host.pyz: runs by a Python that has nothing of edgellm's environment, and is the same each time it is made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgellm.host.verbs import HOST_VERBS
from edgellm.service.install import Mode, Target, install_files, system_files
from edgellm.service.install.host_tool import host_tool


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tool") / "host.pyz"
    path.write_bytes(host_tool())
    return path


def run(tool: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -S: without the packages of an environment; the standard library is all there is.
    return subprocess.run(
        ["/usr/bin/python3", "-I", "-S", str(tool), *arguments], capture_output=True, text=True, check=False, cwd="/"
    )


@pytest.mark.parametrize("verb", list(HOST_VERBS))
def test_every_verb_runs_with_the_standard_library_alone(tool: Path, verb: str) -> None:
    shown = run(tool, verb, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"usage: edgellm {verb}" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nonsense",), 64, "there is no verb 'nonsense' here"),
        (("upgrade",), 64, "nothing is said to do"),
        (("upgrade", "--list", "--resume"), 64, "exclude each other"),
        (("upgrade", "wheel", "--keep", "-1"), 64, "is no number of releases from 0"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_a_code(
    tool: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    refused = run(tool, *arguments)
    assert refused.returncode == code
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_the_same_source_gives_the_same_bytes(tool: Path) -> None:
    assert host_tool() == tool.read_bytes()


@pytest.mark.parametrize("mode", list(Mode))
def test_an_uninstall_needs_neither_an_environment_nor_an_image(tool: Path, mode: Mode, tmp_path: Path) -> None:
    target = Target(tmp_path)
    install_files(mode, target, system_files(mode, target, gpu=False))
    removed = run(tool, "uninstall", "--root", str(tmp_path))
    assert (removed.returncode, removed.stdout.count("removed ")) == (0, len(system_files(mode, target, gpu=False)) - 1)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["edgellm.toml"]
    again = run(tool, "uninstall", "--root", str(tmp_path))
    assert again.returncode == 78
    assert "has not installed anything here" in again.stderr
