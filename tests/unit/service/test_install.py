"""Installing: exactly one mode, the same twice, and gone without a trace but what is the operator's."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgellm.cli.install import HOST_UNITS, VENV_COMMAND
from edgellm.cli.main import main
from edgellm.errors import ConfigError
from edgellm.host import target_commands
from edgellm.host.host_state import HostState
from edgellm.host.installed_files import (
    IMAGE_MANIFEST,
    OWN_TOOLS,
    RECORD,
    UNIT_FOLDER,
    UNITS_OF_KIND,
    Change,
    digest_of,
    read_record,
    remove_files,
    with_image,
    write_record,
)
from edgellm.host.paths import HostPaths
from edgellm.service.install import Mode, Target, install_files, installed_mode, system_files
from edgellm.service.install.installation import note_enabled

needs_systemd = pytest.mark.skipif(shutil.which("systemctl") is None, reason="systemctl is not on this machine")
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


def uninstall(target: Target, *, dry_run: bool = False) -> list[Change]:
    record = read_record(target)
    assert record is not None
    return list(remove_files(target, record, dry_run=dry_run))


def files_of(target: Target) -> dict[str, bytes]:
    found = (path for path in target.root.rglob("*") if path.is_file())
    return {path.relative_to(target.root).as_posix(): path.read_bytes() for path in found}


def test_what_takes_the_files_off_goes_last(target: Target) -> None:
    """An uninstall that was cut short, or met a file that stays, can be run again."""
    install(target)
    removed = [str(change).split()[1] for change in uninstall(target, dry_run=True)]
    assert removed[-2:] == [str(target.root / name) for name in OWN_TOOLS]


def test_units_of_a_board_s_image_are_taken_off_with_the_others(target: Target) -> None:
    install(target)
    unit = f"{UNIT_FOLDER}/edgellm-first-boot.service"
    target.path(unit).write_text("[Unit]\n")
    digest = digest_of(b"[Unit]\n")
    manifest = target.path(IMAGE_MANIFEST)
    manifest.parent.mkdir(parents=True)
    wants = "etc/systemd/system/multi-user.target.wants/edgellm-first-boot.service"
    files = {unit: {"sha256": digest}, wants: {"link": f"/{unit}"}, "etc/hostname": {"sha256": digest}}
    manifest.write_text(json.dumps({"files": files}))
    record = read_record(target)
    assert record is not None
    record = with_image(target, record)
    assert "edgellm-first-boot.service" in record.units
    assert "edgellm-first-boot.service" in record.enabled
    removed = {str(change.path) for change in remove_files(target, record)}
    assert str(target.root / unit) in removed
    assert str(target.root / "etc/hostname") not in removed
    manifest.write_text("{")
    assert with_image(target, record) == record


LEFT_OF_KILLS = (f"{RECORD}", f"{UNIT_FOLDER}/edgellm.service", "etc/edgellm/edgellm.toml")


def leave(target: Target) -> list[Path]:
    """What a kill leaves of files that are being written, before they get their names."""
    left = [path.with_name(f".{path.name}.0123456789abcdef") for path in map(target.entry, LEFT_OF_KILLS)]
    for path in left:
        path.write_text("half")
    return left


def test_an_installation_removes_what_a_kill_left_of_another(target: Target) -> None:
    install(target)
    left = leave(target)
    install(target, dry_run=True)
    assert all(path.exists() for path in left)
    files = system_files(Mode.VENV, target, gpu=False)
    assert install(target) == []
    note_enabled(Mode.VENV, target, files, [])
    assert not any(path.exists() for path in left)


def test_an_uninstall_removes_what_a_kill_left_of_another(target: Target) -> None:
    install(target)
    left = leave(target)[:2]
    # A kill between the last file of a folder and the folder.
    (drop_ins,) = {path.parent for path in target.path(UNIT_FOLDER).glob("edgellm.service.d/*")}
    for path in drop_ins.iterdir():
        path.unlink()
    uninstall(target, dry_run=True)
    assert drop_ins.is_dir()
    uninstall(target)
    assert not any(path.exists() for path in left)
    assert not drop_ins.exists()
    assert not target.path(RECORD).parent.exists()


def test_nothing_is_taken_off_while_an_upgrade_is_at_it(
    target: Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(target)
    before = files_of(target)
    monkeypatch.setattr(Target, "is_host", property(lambda self: True))
    with HostState(HostPaths(target.root)).locked():
        assert main(["uninstall", "--root", str(target.root)]) == 75
    assert "another upgrade runs on this machine" in capsys.readouterr().err
    assert files_of(target).keys() >= before.keys()


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
    with pytest.raises(ConfigError, match=f"edgellm install --mode {mode.value} --root .*, then: edgellm uninstall"):
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
    assert any("removed" in str(change) for change in uninstall(target, dry_run=True))
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
    uninstall(target)
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
    changes = {str(change).split()[0] for change in uninstall(target)}
    assert changes == {"removed", "kept"}
    left = set(files_of(target)) - before
    assert left == {CONFIG, f"{UNIT}.d/50-mine.conf", "usr/local/bin/edgellm"}
    assert read_record(target) is None
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


def run_by_name(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_units_of_each_kind_are_those_that_are_installed(target: Target) -> None:
    for kind, names in UNITS_OF_KIND.items():
        mode = Mode(kind.value)
        only = set(system_files(mode, target, gpu=True)) - set(system_files(mode.other, target, gpu=True))
        assert {name for name in only if name.endswith((".service", ".container"))} == set(names)


@pytest.mark.parametrize(("mode", "unit"), [(Mode.VENV, UNIT), (Mode.CONTAINER, QUADLET)])
def test_a_changed_unit_is_set_aside_so_that_the_other_mode_can_come(target: Target, mode: Mode, unit: str) -> None:
    for edited in ("once", "twice"):
        install(target, mode)
        target.path(unit).write_text(edited)
        target.path(f"{unit}.d").mkdir(exist_ok=True)
        target.path(f"{unit}.d/50-mine.conf").write_text("[Service]\n")
        kept = [str(change) for change in uninstall(target) if change.what == "kept"]
        assert len(kept) == 1
        assert str(target.path(unit)) in kept[0]
    assert not target.path(unit).exists()
    assert target.path(f"{unit}.changed").read_text() == "once"
    assert target.path(f"{unit}.changed-2").read_text() == "twice"
    assert target.path(f"{unit}.d/50-mine.conf").exists()
    install(target, mode.other)
    assert installed_mode(target) is mode.other


def test_an_upgrade_sets_a_changed_unit_aside_that_it_no_longer_has(target: Target) -> None:
    install(target, gpu=True)
    drop_in = target.path(f"{UNIT}.d/20-gpu.conf")
    drop_in.write_text("[Service]\n# mine\n")
    assert any("now 20-gpu.conf.changed" in change for change in install(target, gpu=False))
    assert not drop_in.exists()


def test_a_lost_record_is_no_dead_end(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--root", str(target.root)]
    code, _, said = run_by_name(capsys, "uninstall", *root)
    assert (code, "has not installed anything here" in said) == (78, True)
    install(target)
    target.path(RECORD).unlink()
    code, _, said = run_by_name(capsys, "uninstall", *root)
    assert code == 78
    assert f"edgellm install --mode venv --root {target.root}, then: edgellm uninstall --root {target.root}" in said
    install(target)
    uninstall(target)
    assert installed_mode(target) is None


def test_links_of_the_root_lead_inside_it(tmp_path: Path, target: Target) -> None:
    elsewhere = tmp_path / "elsewhere"
    board = Target(tmp_path / "board")
    for folder in (elsewhere, board.root / "usr", board.root / "etc"):
        folder.mkdir(parents=True)
    (board.root / "etc/edgellm").symlink_to(elsewhere)
    (board.root / "usr/local").symlink_to("/data/../../../data/local")
    (board.root / "usr/share").symlink_to("../../../data/share")
    for mode in Mode:
        install(board, mode)
        assert installed_mode(board) is mode
        assert install(board, mode) == []
        assert list(elsewhere.iterdir()) == []
        assert board.root.joinpath(*elsewhere.parts[1:], "edgellm.toml").is_file()
        assert (board.root / "data/local/bin/edgellm").is_file()
        uninstall(board)
        assert [path for path in (board.root / "data").rglob("*") if path.is_file()] == []


def test_a_file_that_is_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.write_text("precious")
    board = Target(tmp_path / "board")
    (board.root / "usr/local/bin").mkdir(parents=True)
    wrapper = board.root / "usr/local/bin/edgellm"
    wrapper.symlink_to(outside)
    install(board)
    assert not wrapper.is_symlink()
    wrapper.unlink()
    wrapper.symlink_to(outside)
    uninstall(board)
    assert outside.read_text() == "precious"


def test_links_that_go_round_are_named(target: Target) -> None:
    target.root.joinpath("usr").symlink_to("/usr")
    with pytest.raises(ConfigError, match=f"{target.root}/usr.*symbolic links"):
        install(target)


@needs_systemd
def test_units_are_enabled_once_and_then_the_administrators(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["install", "--mode", "venv", "--root", str(target.root)]
    wants = target.path("etc/systemd/system/multi-user.target.wants")
    code, _, said = run_by_name(capsys, *words)
    assert code == 0, said
    assert (wants / "edgellm-prewarm.service").is_symlink()
    (wants / "edgellm-prewarm.service").unlink()
    assert run_by_name(capsys, *words)[0] == 0
    assert not (wants / "edgellm-prewarm.service").is_symlink()
    assert (wants / "edgellm.service").is_symlink()
    # Of an installation that did not write it down, and lacked a unit.
    record = json.loads(target.path(RECORD).read_text())
    del record["enabled"], record["files"]["usr/local/lib/systemd/system/edgellm-upgrade-recover.service"]
    target.path(RECORD).write_text(json.dumps(record))
    for unit in ("edgellm.service", "edgellm-upgrade-recover.service"):
        (wants / unit).unlink()
    assert run_by_name(capsys, *words)[0] == 0
    assert not (wants / "edgellm.service").is_symlink()
    assert (wants / "edgellm-upgrade-recover.service").is_symlink()
    assert run_by_name(capsys, "uninstall", "--root", str(target.root))[0] == 0
    assert [path for path in wants.parent.rglob("*") if path.is_symlink()] == []


@needs_systemd
def test_a_masked_unit_is_left_alone_and_said(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["install", "--mode", "venv", "--root", str(target.root)]
    mask = target.path("etc/systemd/system/edgellm-prewarm.service")
    mask.parent.mkdir(parents=True)
    mask.symlink_to("/dev/null")
    code, shown, said = run_by_name(capsys, *words)
    assert code == 0
    assert "edgellm-prewarm.service is masked, and was not enabled — systemctl unmask edgellm-prewarm" in said
    assert shown.endswith("installed\n")
    assert mask.parent.joinpath("multi-user.target.wants/edgellm.service").is_symlink()
    assert run_by_name(capsys, "uninstall", "--root", str(target.root))[0] == 0
    assert os.readlink(mask) == "/dev/null"
    mask.unlink()
    assert run_by_name(capsys, *words)[0] == 0
    assert mask.parent.joinpath("multi-user.target.wants/edgellm-prewarm.service").is_symlink()
    # Masked since: what enabled it goes with it.
    mask.symlink_to("/dev/null")
    assert run_by_name(capsys, "uninstall", "--root", str(target.root))[0] == 0
    assert [path for path in mask.parent.rglob("*") if path.is_symlink()] == [mask]


@needs_systemd
def test_a_container_without_podman_is_said(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["install", "--mode", "container", "--root", str(target.root)]
    code, shown, said = run_by_name(capsys, *words)
    assert code == 0
    assert shown.endswith("installed\n")
    assert said == (
        "edgellm: podman is not there yet, and the service cannot start without it — apt install podman, 4.9 or newer\n"
    )
    podman = target.path("usr/bin/podman")
    podman.parent.mkdir(parents=True, exist_ok=True)
    podman.touch()
    assert run_by_name(capsys, *words) == (0, "container, without a GPU: nothing changed\n", "")
    packages = target.path("var/lib/dpkg/status")
    packages.parent.mkdir(parents=True)
    packages.write_text("Package: podman\nVersion: 4.3.1+ds1-8\n")
    assert "podman 4.3.1 is too old for the units" in run_by_name(capsys, *words)[2]


@needs_systemd
def test_a_command_that_fails_is_said_at_the_end_and_the_rest_is_done(
    target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    install(target)
    # What systemd is to remove a link from is a file.
    target.path("etc/systemd").write_text("")
    code, shown, said = run_by_name(capsys, "install", "--mode", "venv", "--root", str(target.root))
    assert code == 78
    assert f"systemctl --root={target.root} --quiet enable" in said.splitlines()[-1]
    assert "installed" not in shown


def test_what_is_said_of_the_running_host_names_no_folder_of_a_container(target: Target) -> None:
    """Its root is seen below a folder there, which the host does not have."""
    target.path("run/systemd/system").mkdir(parents=True)
    install(target)
    with pytest.raises(ConfigError) as refused:
        install(target, Mode.CONTAINER)
    assert str(refused.value).endswith("run: edgellm uninstall")
    assert str(target.root) not in str(refused.value)
    target.path(RECORD).write_text("{")
    with pytest.raises(ConfigError, match=f"^/{RECORD} is damaged"):
        install(target)
    target.path(RECORD).unlink()
    assert all(f" /{'usr' if 'usr' in line else 'etc'}/" in line for line in install(target, gpu=True))
    target.path(CONFIG).unlink()
    target.path("etc/passwd").write_text("edgellm:x:999:999::/:/bin/sh\n")
    uninstall(target)
    with pytest.raises(ConfigError, match=r"^/etc/passwd: "):
        install(target, Mode.CONTAINER)


@pytest.fixture
def boards(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Target]:
    """Copies of the target, links and all."""

    def make() -> Target:
        folder = tmp_path_factory.mktemp("board") / "root"
        shutil.copytree(target.root, folder, symlinks=True)
        return Target(folder)

    return make


def wants_of(target: Target) -> set[str]:
    return {path.name for path in target.path("etc/systemd/system").glob("*.wants/*") if path.is_symlink()}


@needs_systemd
@pytest.mark.parametrize("mode", list(Mode))
def test_an_uninstall_that_was_killed_after_it_disabled_the_units_is_undone_by_an_install(
    target: Target, mode: Mode, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = ("--root", str(target.root))
    assert run_by_name(capsys, "install", "--mode", mode.value, *root)[0] == 0
    enabled, before = wants_of(target), files_of(target)
    programs = tmp_path_factory.mktemp("programs")
    deadly = programs / "systemctl"
    deadly.write_text(f'#!/bin/sh\n{shutil.which("systemctl")} "$@"\nkill -KILL $PPID\n')
    deadly.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    command = [sys.executable, "-m", "edgellm", "uninstall", *root]
    assert subprocess.run(command, env={**os.environ, "PATH": path}, check=False).returncode == -signal.SIGKILL
    assert wants_of(target) == set()
    assert files_of(target).keys() == before.keys()
    code, _, said = run_by_name(capsys, "install", "--mode", mode.value, *root)
    assert code == 0, said
    assert wants_of(target) == enabled
    assert files_of(target) == before
    # And an administrator's word counts again.
    target.path("etc/systemd/system/multi-user.target.wants").joinpath("edgellm-device-facts.service").unlink()
    assert run_by_name(capsys, "install", "--mode", mode.value, *root)[1].endswith("nothing changed\n")
    assert "edgellm-device-facts.service" not in wants_of(target)


@needs_systemd
@pytest.mark.parametrize("mode", list(Mode))
def test_an_uninstall_may_be_cut_after_any_file(
    target: Target, mode: Mode, boards: Callable[[], Target], capsys: pytest.CaptureFixture[str]
) -> None:
    """Then it can be run again where its command is left; the same mode can be had back, and the other one come."""
    assert run_by_name(capsys, "install", "--mode", mode.value, "--root", str(target.root))[0] == 0
    enabled, before = wants_of(target), files_of(target)
    record = read_record(target)
    assert record is not None
    write_record(target, replace(record, is_being_removed=True))
    for link in target.path("etc/systemd/system").glob("*.wants/*"):
        link.unlink()
    removal = remove_files(target, record)
    for left in range(len(record.files), -1, -1):
        assert len(set(record.files) & files_of(target).keys()) == left
        again, same, other = boards(), boards(), boards()
        assert run_by_name(capsys, "uninstall", "--root", str(again.root))[0] == 0
        assert files_of(again).keys() & {*record.files, RECORD} == set()
        assert run_by_name(capsys, "install", "--mode", mode.value, "--root", str(same.root))[0] == 0
        assert (files_of(same), wants_of(same)) == (before, enabled)
        code, _, said = run_by_name(capsys, "install", "--mode", mode.other.value, "--root", str(other.root))
        if code != 0:
            assert said.endswith(f"run: edgellm uninstall --root {other.root}\n")
            assert all(other.path(name).exists() for name in OWN_TOOLS)
        else:
            there = read_record(other)
            assert there is not None
            assert (there.kind.value, there.is_being_removed) == (mode.other.value, False)
            assert set(there.enabled) == wants_of(other) >= set(HOST_UNITS)
            assert {name for name in files_of(other) if name.startswith("usr/")} == {*there.files, RECORD}
        next(removal, None)
    assert read_record(target) is None


def test_an_uninstall_that_fails_says_so_and_is_completed_by_another(
    target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ("--root", str(target.root))
    install(target)
    folder = target.path(f"{UNIT}.d")
    shutil.rmtree(folder)
    folder.symlink_to(folder.name)  # links that go round
    code, shown, said = run_by_name(capsys, "uninstall", *root)
    assert code == 78
    assert "removed  " in shown  # what was done before is said, too
    assert f"removed in part only: {folder}" in said
    assert (
        f"run edgellm uninstall --root {target.root} again, or edgellm install --mode venv --root {target.root}" in said
    )
    folder.unlink()
    assert run_by_name(capsys, "uninstall", *root)[0] == 0
    assert installed_mode(target) is None
    assert read_record(target) is None


@needs_systemd
def test_links_that_systemd_leaves_go_with_the_units(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    """It disables no unit whose file somebody removed."""
    root = ("--root", str(target.root))
    assert run_by_name(capsys, "install", "--mode", "venv", *root)[0] == 0
    target.path(UNIT).unlink()
    assert run_by_name(capsys, "uninstall", *root)[0] == 0
    assert wants_of(target) == set()


@pytest.mark.parametrize("mode", list(Mode))
def test_a_record_without_its_units_stands_in_nobodys_way(target: Target, mode: Mode) -> None:
    install(target, mode)
    kept = target.path(RECORD).read_bytes()
    uninstall(target)
    target.path(RECORD).parent.mkdir(parents=True, exist_ok=True)
    target.path(RECORD).write_bytes(kept)
    assert installed_mode(target) is None
    install(target, mode.other)
    assert installed_mode(target) is mode.other
    uninstall(target)
    assert read_record(target) is None


def test_the_way_out_of_the_other_mode_brings_the_command_back(target: Target) -> None:
    install(target, Mode.CONTAINER)
    target.path("usr/local/bin/edgellm").unlink()
    with pytest.raises(ConfigError, match=r"install --mode container --root .*, then: edgellm uninstall --root"):
        install(target, Mode.VENV)


def test_units_that_systemctl_fails_to_disable_are_off_all_the_same(
    target: Target,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    install(target)
    record = read_record(target)
    assert record is not None
    write_record(target, replace(record, enabled=["edgellm.service"]))
    wants = target.path("etc/systemd/system/multi-user.target.wants")
    wants.mkdir(parents=True)
    (wants / "edgellm.service").symlink_to(f"/{UNIT}")
    failing = tmp_path_factory.mktemp("programs") / "systemctl"
    failing.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", str(failing.parent), prepend=os.pathsep)
    code, _, said = run_by_name(capsys, "uninstall", "--root", str(target.root))
    assert code == 78
    assert said.startswith("edgellm: edgellm is removed, but systemctl ")
    assert said.endswith("edgellm.service ended with 1: no\n")
    assert (wants_of(target), read_record(target)) == (set(), None)


def test_a_container_is_not_taken_for_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed into one that is thrown away is gone, and the host has nothing."""
    mark = tmp_path / ".containerenv"
    monkeypatch.setattr(target_commands, "CONTAINER_MARKS", (str(mark),))
    monkeypatch.setattr(Target, "is_running_systemd", property(lambda self: False))
    this_system, folder = argparse.Namespace(root=Path("/")), argparse.Namespace(root=tmp_path)
    assert target_commands.target_of(this_system).is_this_system
    mark.touch()
    with pytest.raises(ConfigError, match=r"this is a container, .* --volume=/:/host and --root=/host"):
        target_commands.target_of(this_system)
    assert target_commands.target_of(folder).root == tmp_path
    monkeypatch.setattr(Target, "is_running_systemd", property(lambda self: True))
    assert target_commands.target_of(this_system).is_this_system  # one that runs systemd is a host
