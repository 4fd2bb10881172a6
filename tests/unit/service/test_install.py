"""Installing: exactly one mode, the same twice, and gone without a trace but what is the operator's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgellm.cli.install import VENV_COMMAND
from edgellm.cli.main import main
from edgellm.errors import ConfigError
from edgellm.service.install import Mode, Target, install_files, installed_mode, remove_files, system_files
from edgellm.service.install.installation import RECORD

UNIT = "usr/local/lib/systemd/system/edgellm.service"
QUADLET = "usr/share/containers/systemd/edgellm.container"
CONFIG = "etc/edgellm/edgellm.toml"
ORIN = "# R39 (release), REVISION: 2.1, GCID: 1, BOARD: generic\n"


@pytest.fixture
def target(tmp_path: Path) -> Target:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_text("root:x:0:\nvideo:x:44:\nrender:x:110:\n")
    (tmp_path / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    return Target(tmp_path)


def install(target: Target, mode: Mode = Mode.VENV, *, gpu: bool = False, dry_run: bool = False) -> list[str]:
    changes = install_files(mode, target, system_files(mode, target, gpu=gpu), dry_run=dry_run)
    return [str(change) for change in changes]


def files_of(target: Target) -> dict[str, bytes]:
    found = (path for path in target.root.rglob("*") if path.is_file())
    return {path.relative_to(target.root).as_posix(): path.read_bytes() for path in found}


def test_the_second_time_changes_nothing(target: Target) -> None:
    assert any(UNIT in change for change in install(target))
    before = files_of(target)
    assert install(target) == []
    assert files_of(target) == before
    assert installed_mode(target) is Mode.VENV


@pytest.mark.parametrize("mode", list(Mode))
def test_the_other_mode_is_refused(target: Target, mode: Mode) -> None:
    install(target, mode)
    before = files_of(target)
    with pytest.raises(ConfigError, match=f"installed as a {mode.value} below .*edgellm uninstall --root"):
        install(target, mode.other)
    target.path(RECORD).unlink()  # as after a copy by hand
    with pytest.raises(ConfigError, match="edgellm uninstall"):
        install(target, mode.other)
    assert files_of(target).keys() == before.keys() - {RECORD}


def test_the_way_out_of_the_other_mode_names_the_same_root(target: Target) -> None:
    install(target, Mode.VENV)
    with pytest.raises(ConfigError) as refused:
        install(target, Mode.CONTAINER)
    assert f"venv below {target.root}, " in str(refused.value)
    assert str(refused.value).endswith(f"run: edgellm uninstall --root {target.root}")


def test_a_dry_run_says_what_would_change_and_changes_nothing(target: Target) -> None:
    before = files_of(target)
    assert any(UNIT in change for change in install(target, dry_run=True))
    assert files_of(target) == before
    install(target)
    before = files_of(target)
    assert any("removed" in str(change) for change in remove_files(target, dry_run=True))
    assert files_of(target) == before


def test_programs_can_be_run_and_everything_can_be_read(target: Target) -> None:
    install(target)
    assert target.path("usr/local/bin/edgellm").stat().st_mode & 0o777 == 0o755
    assert target.path("usr/local/lib/edgellm/device-facts").stat().st_mode & 0o777 == 0o755
    assert target.path(UNIT).stat().st_mode & 0o777 == 0o644
    assert target.path(UNIT).parent.stat().st_mode & 0o777 == 0o755


def test_configuration_is_the_operators_from_then_on(target: Target) -> None:
    install(target)
    target.path(CONFIG).write_text("[server]\nport = 1234\n")
    assert install(target) == []
    remove_files(target)
    assert target.path(CONFIG).read_text() == "[server]\nport = 1234\n"


def test_an_upgrade_mends_what_was_changed_and_removes_what_is_no_longer_there(target: Target) -> None:
    install(target, gpu=True)
    drop_in = target.path(f"{UNIT}.d/20-gpu.conf")
    assert drop_in.exists()
    target.path(UNIT).write_text("changed by hand")
    changes = install(target, gpu=False)
    assert sorted(change.split()[0] for change in changes) == ["changed", "removed", "removed", "removed"]
    assert not drop_in.exists()
    assert "ExecStart" in target.path(UNIT).read_text()


def test_an_uninstall_leaves_only_what_is_theirs(target: Target) -> None:
    before = set(files_of(target))
    install(target)
    target.path(f"{UNIT}.d/50-mine.conf").write_text("[Service]\n")
    target.path("usr/local/bin/edgellm").write_text("mine now")
    changes = {str(change).split()[0] for change in remove_files(target)}
    assert changes == {"removed", "kept"}
    left = set(files_of(target)) - before
    assert left == {CONFIG, f"{UNIT}.d/50-mine.conf", "usr/local/bin/edgellm"}
    with pytest.raises(ConfigError, match="has not installed anything"):
        remove_files(target)
    assert installed_mode(target) is None


def test_a_container_is_given_what_the_machine_has(target: Target) -> None:
    install(target, Mode.CONTAINER)
    plain = target.path(QUADLET).read_text()
    assert "AddDevice" not in plain
    assert "--group-add" not in plain
    assert "nv_tegra_release" not in plain
    target.path("etc/nv_tegra_release").write_text(ORIN)
    assert target.has_gpu
    install(target, Mode.CONTAINER, gpu=True)
    fitted = target.path(QUADLET).read_text()
    assert "AddDevice=nvidia.com/gpu=all\n" in fitted
    assert "PodmanArgs=--group-add=44 --group-add=110\n" in fitted
    assert "Volume=/etc/nv_tegra_release:/etc/nv_tegra_release:ro\n" in fitted


@pytest.mark.parametrize("row", ["backup:x:780:780::/:/bin/sh\n", "edgellm:x:999:999::/:/bin/sh\n"])
def test_a_user_with_another_number_is_refused_for_the_container_alone(target: Target, row: str) -> None:
    target.path("etc/passwd").write_text(row)
    with pytest.raises(ConfigError, match="780"):
        install(target, Mode.CONTAINER)
    install(target, Mode.VENV)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"mode": "venv"}', '{"mode": "other", "files": {}}', '{"mode": "venv", "files": {"../x": "0"}}'],
)
def test_a_damaged_record_is_named(target: Target, text: str) -> None:
    install(target)
    target.path(RECORD).write_text(text)
    with pytest.raises(ConfigError, match=r"installed\.json"):
        install(target)


def test_the_record_names_files_and_their_digests(target: Target) -> None:
    install(target)
    record = json.loads(target.path(RECORD).read_text())
    assert record["mode"] == "venv"
    assert UNIT in record["files"]
    assert CONFIG not in record["files"]


def test_the_command_refuses_a_root_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--mode", "venv", "--root", str(tmp_path / "absent")]) == 78
    assert "is no folder" in capsys.readouterr().err


def test_an_empty_root_is_not_the_current_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--mode", "venv", "--root", ""]) == 64
    assert "argument --root: an empty text names no file or folder" in capsys.readouterr().err


def test_the_command_says_what_it_would_run(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--root", str(target.root), "--dry-run"]
    assert main(["install", "--mode", "venv", "--gpu", "yes", *arguments]) == 0
    said, noted = capsys.readouterr()
    assert f"would be made     {target.path(CONFIG)}\n" in said
    assert not any(line.startswith(("made", "changed", "removed", "kept")) for line in said.splitlines())
    assert "/opt/edgellm/bin/edgellm is not there yet, and the service cannot start without it — first" in noted
    assert f"would run systemd-sysusers --root={target.root} edgellm.conf edgellm-gpu.conf" in said
    assert f"would run systemctl --root={target.root} --quiet enable edgellm.service" in said
    assert said.endswith("venv, with a GPU: would be installed\n")
    program = target.path(VENV_COMMAND)
    program.parent.mkdir(parents=True)
    program.touch()
    assert main(["install", "--mode", "venv", *arguments]) == 0
    said, noted = capsys.readouterr()
    assert said.endswith("venv, without a GPU: would be installed\n")
    assert noted == ""
    assert main(["install", "--mode", "container", *arguments]) == 0
    said = capsys.readouterr().out
    assert "enable edgellm-device-facts.service edgellm-upgrade-recover.service\n" in said
