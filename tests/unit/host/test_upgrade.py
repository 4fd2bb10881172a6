"""The steps of an upgrade: cut anywhere, the next boot has a whole release, and the upgrade can go on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgellm.errors import HostSpaceError, ReleaseSourceError, UpgradeError, UpgradeRunningError, VersionFloorError
from edgellm.host import upgrade as upgrade_module
from edgellm.host.commands import Said
from edgellm.host.host_state import HostState, Journey
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind, Release
from edgellm.host.source import Source
from edgellm.host.upgrade import Upgrade
from edgellm.host.upgrade_report import StepReport, UpgradeReport, kept_lines, report_line
from edgellm.host.versions import Version

OLD = Release(Kind.VENV, "1.0", "a" * 64)
NEW = Release(Kind.VENV, "1.1", "b" * 64)
NEWER = Release(Kind.VENV, "1.2", "c" * 64)
BEFORE, AFTER = "# of 1.0\n", "# of 1.1\n"


class PowerCutError(BaseException):
    """Nothing catches it, as nothing catches a power cut."""


@dataclass
class Disk:
    """What outlives a power cut, beside the files."""

    current: Release = OLD
    staged: dict[str, Release] = field(default_factory=lambda: {OLD.id: OLD})
    pinned: set[str] = field(default_factory=set)
    fails_at: str = ""
    changes_nothing: bool = False
    needed_bytes: int = 0
    brings_example: bool = False  # a configuration where there is none, as installations do
    refuses: str = ""  # what 1.0 does not know in a configuration


class FakeReleases:
    def __init__(self, disk: Disk, paths: HostPaths, offered: Release) -> None:
        self._disk, self._paths, self._offered = disk, paths, offered

    def current(self) -> Release:
        return self._disk.current

    def identify(self, source: Source) -> Release:
        return self._offered

    def needed_bytes(self, source: Source) -> tuple[int, Path]:
        return self._disk.needed_bytes, self._paths.root

    def stage(self, source: Source) -> Release:
        self._disk.staged[self._offered.id] = self._offered
        return self._offered

    def is_staged(self, release: Release) -> bool:
        return release.id in self._disk.staged

    def unstage_unfinished(self) -> None:
        pass

    def command(self, release: Release, *arguments: str) -> Said:
        if arguments[:2] == ("engine", "list"):
            one = {"name": "engine-1", "pinned": "engine-1" in self._disk.pinned, "read_only": False, "problem": None}
            return Said(0, json.dumps([one]), "")
        if arguments[:2] == ("engine", "pin"):
            self._disk.pinned |= set(arguments[2:])
        if arguments[:2] == ("engine", "unpin"):
            self._disk.pinned -= set(arguments[2:])
        if arguments[0] == self._disk.fails_at:
            return Said(78, "", "server.port is wrong")
        return Said(0, "", "")

    def check_configuration(self, release: Release, file: Path) -> Said:
        if self._disk.refuses and self._disk.refuses in file.read_text() and release.id == OLD.id:
            return Said(78, "", f"{self._disk.refuses} is no setting")
        return self.command(release, "config", "check")

    def prewarm(self, release: Release, configuration: Path | None = None) -> None:
        used = configuration or self._paths.configuration
        assert not self._disk.refuses or release.id != OLD.id or self._disk.refuses not in used.read_text()
        if self._disk.fails_at == "prewarm":
            raise UpgradeError("no room for the engine")

    def switch(self, release: Release) -> None:
        assert release.id in self._disk.staged
        self._disk.current = release

    def install(self, release: Release) -> None:
        if not (self._disk.changes_nothing or (self._disk.brings_example and self._paths.configuration.exists())):
            self._paths.configuration.parent.mkdir(exist_ok=True)
            self._paths.configuration.write_text(AFTER)  # worse than any installation does

    def drop(self, release: Release) -> None:
        assert release.id != self._disk.current.id, "the release that serves was dropped"
        self._disk.staged.pop(release.id, None)

    def present(self) -> Sequence[str]:
        return list(self._disk.staged)


class FakeUnit:
    fails_for = ""
    runs = True
    disk: Disk

    def stop(self) -> bool:
        return True

    def start(self, deadline_seconds: float) -> None:
        if self.disk.current.version == self.fails_for:
            raise UpgradeError("the service ended with 70")

    def refuse_masked(self, unit: str = "") -> None:
        """Nothing is."""

    def restarts(self) -> int:
        return 0

    def is_active(self) -> bool:
        return self.runs

    def journal(self, unit: str = "", *, lines: int = 0) -> list[str]:
        return ["a line of the journal"]


class Machine:
    """A machine with 1.0, which 1.1 is offered to."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths = HostPaths(root)
        self.disk = Disk()
        self.steps: list[StepReport] = []
        self.smoke_fails_for = ""
        self.edit_in_smoke = ""
        self.paths.configuration.parent.mkdir(parents=True)
        self.paths.configuration.write_text(BEFORE)
        self._monkeypatch = monkeypatch
        FakeUnit.disk, FakeUnit.fails_for, FakeUnit.runs = self.disk, "", True
        monkeypatch.setattr(upgrade_module, "ServiceUnit", FakeUnit)
        monkeypatch.setattr(upgrade_module, "reload_units", lambda: None)
        monkeypatch.setattr(upgrade_module, "smoke_chat", self._smoke_chat)
        self.state = HostState(self.paths)

    def _smoke_chat(self, paths: HostPaths, version: str) -> list[Any]:
        assert version == self.disk.current.version
        if self.edit_in_smoke:
            self.paths.configuration.write_text(self.edit_in_smoke)
            self.edit_in_smoke = ""
        if version == self.smoke_fails_for:
            raise UpgradeError("the chat was answered with 500")
        return []

    def upgrade(self, offered: Release = NEW) -> Upgrade:
        """As a process of its own: nothing is remembered but what is on the disk."""
        return Upgrade(
            self.paths, HostState(self.paths), FakeReleases(self.disk, self.paths, offered), self.steps.append
        )

    def go(
        self, offered: Release = NEW, *, keep: int = 2, floor: str | None = None, config_file: Path | None = None
    ) -> UpgradeReport:
        source = Source(Kind.VENV, floor=floor)
        return self.upgrade(offered).to_source(source, "wheel", keep=keep, config_file=config_file)

    def cut_at(self, write: int, *, before_it: bool) -> None:
        """The power goes at that write of the journal of steps, before or after it is on the disk."""
        whole, count = HostState.write_journey, iter(range(1, 1000))

        def write_journey(state: HostState, journey: Journey) -> None:
            number = next(count)
            if number == write and before_it:
                raise PowerCutError
            whole(state, journey)
            if number == write:
                raise PowerCutError

        self._monkeypatch.setattr(HostState, "write_journey", write_journey)

    def power_returns(self) -> None:
        self._monkeypatch.undo()
        FakeUnit.disk = self.disk
        for name, value in (
            ("ServiceUnit", FakeUnit),
            ("reload_units", lambda: None),
            ("smoke_chat", self._smoke_chat),
        ):
            self._monkeypatch.setattr(upgrade_module, name, value)

    def drop_in(self, name: str) -> Path:
        folder = self.paths.at("etc/systemd/system/edgellm.service.d")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.conf"

    def drop_ins(self) -> dict[str, str]:
        return {file.stem: file.read_text() for file in self.drop_in("any").parent.iterdir()}

    @property
    def configuration(self) -> str:
        return self.paths.configuration.read_text()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_every_step_is_taken_in_its_order(machine: Machine) -> None:
    report = machine.go()
    assert [one.step.value for one in machine.steps if one.seconds is not None] == [
        *("staged", "drained", "switched", "ready", "smoke", "kept")
    ]
    assert (report.result, report.serving, report.exit_code) == ("upgraded", NEW.id, 0)
    assert machine.disk.current == NEW
    assert [one.id for one in machine.state.releases()] == [OLD.id, NEW.id]
    assert machine.state.journey() is None
    assert machine.disk.pinned == {"engine-1"}


WRITES = 15  # one when it begins, two a step, two more while staging


@pytest.mark.parametrize("before_it", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
def test_a_power_cut_anywhere_leaves_a_whole_release_and_the_upgrade_goes_on(
    machine: Machine, write: int, before_it: bool
) -> None:
    machine.cut_at(write, before_it=before_it)
    with pytest.raises(PowerCutError):
        machine.go()
    machine.power_returns()
    machine.upgrade().recover()
    serves_new = machine.disk.current.id == NEW.id
    assert machine.configuration == (AFTER if serves_new else BEFORE)
    assert serves_new == (machine.state.journey() is None and write > 1)
    resumed = machine.upgrade().resume(lambda text: Source(Kind.VENV))
    if write > 1 or not before_it:
        assert resumed.result in ("upgraded", "unchanged")
        assert (machine.disk.current.id, machine.configuration) == (NEW.id, AFTER)
    else:
        assert resumed.result == "unchanged"
        assert machine.disk.current == OLD
    assert machine.state.journey() is None
    assert machine.upgrade().recover() is None


def test_there_are_no_more_writes_than_the_cuts_cover(machine: Machine) -> None:
    machine.cut_at(WRITES + 1, before_it=True)
    machine.go()


@pytest.mark.parametrize("write", range(2, WRITES - 1))
def test_a_power_cut_and_then_another_release(machine: Machine, write: int) -> None:
    machine.cut_at(write, before_it=False)
    with pytest.raises(PowerCutError):
        machine.go()
    machine.power_returns()
    machine.upgrade().recover()
    assert machine.go(NEWER).result == "upgraded"
    assert machine.disk.current == NEWER
    # The one that was never smoke-tested is gone.
    assert NEW.id not in machine.disk.staged or NEW.id in {one.id for one in machine.state.releases()}


@pytest.mark.parametrize("where", ["config", "prewarm", "start", "smoke"])
def test_what_fails_is_as_if_it_had_not_been(machine: Machine, where: str) -> None:
    if where == "start":
        FakeUnit.fails_for = NEW.version
    elif where == "smoke":
        machine.smoke_fails_for = NEW.version
    else:
        machine.disk.fails_at = where
    report = machine.go()
    assert (report.result, report.serving, report.exit_code) == ("returned", OLD.id, 76)
    step = {"config": "staged", "prewarm": "staged", "start": "ready", "smoke": "smoke"}[where]
    assert report.step == step
    assert (machine.disk.current.id, machine.configuration) == (OLD.id, BEFORE)
    assert machine.disk.staged == {OLD.id: OLD}
    assert machine.disk.pinned == set()
    assert machine.state.journey() is None


def test_the_release_that_serves_needs_no_room_and_another_is_refused_without(machine: Machine) -> None:
    """Also where it serves from what an installation put there, and was never staged."""
    machine.disk.needed_bytes = 10**18
    machine.disk.staged.clear()
    assert machine.go(OLD).result == "unchanged"
    with pytest.raises(HostSpaceError, match="the release needs up to"):
        machine.go(NEW)
    assert machine.state.journey() is None


def test_a_release_that_does_not_run_is_not_said_to_serve(machine: Machine) -> None:
    """It was stopped, or had failed, before anybody asked for another one."""
    machine.go()
    FakeUnit.runs = False
    machine.disk.fails_at = "prewarm"
    reports = [
        machine.go(NEWER),
        machine.upgrade().back_to("1.1", keep=2),
        machine.upgrade().resume(lambda text: Source(Kind.VENV)),
        machine.upgrade().abandon(),
    ]
    machine.disk.fails_at = ""
    reports.append(machine.upgrade(NEWER).to_source(Source(Kind.VENV), "wheel", keep=2, only_prepare=True))
    assert [report.result for report in reports] == ["returned", *["unchanged"] * 3, "prepared"]
    for report in reports:
        assert report.serving is None
        assert report_line(report.as_json()).endswith("nothing serves: see systemctl status edgellm")


def test_when_nothing_serves_the_report_says_both_reasons(machine: Machine) -> None:
    machine.smoke_fails_for = NEW.version
    FakeUnit.fails_for = OLD.version
    report = machine.go()
    assert (report.result, report.serving, report.exit_code) == ("down", None, 69)
    assert report.reason is not None
    assert "answered with 500" in report.reason
    assert "does not serve again: the service ended with 70" in report.reason


def test_a_rollback_brings_back_what_the_upgrade_changed(machine: Machine) -> None:
    machine.go()
    assert machine.upgrade().back_to(None, keep=2).result == "rolled_back"
    assert (machine.disk.current.id, machine.configuration) == (OLD.id, BEFORE)
    assert machine.upgrade().back_to("1.1", keep=2).result == "rolled_back"
    assert (machine.disk.current.id, machine.configuration) == (NEW.id, AFTER)
    with pytest.raises(ReleaseSourceError, match=rf"no release 2\.0 is kept on this machine — kept are: {OLD.id}"):
        machine.upgrade().back_to("2.0", keep=2)


def test_a_rollback_leaves_later_edits_alone(machine: Machine) -> None:
    machine.drop_in("old").write_text("[Service]\nNice=1\n")
    machine.drop_in("gone").write_text("[Service]\nNice=2\n")
    machine.go()
    machine.paths.configuration.write_text("# edited since\n")
    machine.drop_in("old").write_text("[Service]\nNice=3\n")
    machine.drop_in("gone").unlink()
    machine.drop_in("new").write_text("[Service]\nNice=4\n")
    for wanted in (OLD, NEW, OLD):
        report = machine.upgrade().back_to(wanted.version, keep=2)
        assert (report.result, report.edits_folder, machine.disk.current.id) == ("rolled_back", None, wanted.id)
        assert machine.configuration == "# edited since\n"
        assert machine.drop_ins() == {"new": "[Service]\nNice=4\n", "old": "[Service]\nNice=3\n"}


def test_an_edit_between_two_upgrades_outlives_a_rollback_over_both(machine: Machine) -> None:
    machine.go()
    machine.paths.configuration.write_text("# edited since\n")
    machine.disk.changes_nothing = True
    machine.go(NEWER)
    assert machine.upgrade().back_to("1.0", keep=2).result == "rolled_back"
    assert (machine.disk.current.id, machine.configuration) == (OLD.id, "# edited since\n")


def test_an_edit_that_a_rollback_brought_back_is_the_operators_still(machine: Machine, tmp_path: Path) -> None:
    machine.drop_in("own").write_text("[Service]\nNice=1\n")
    machine.disk.changes_nothing = True
    machine.go()
    machine.paths.configuration.write_text("# edited since\n")
    machine.drop_in("own").write_text("[Service]\nNice=2\n")
    (tmp_path / "c.toml").write_text("# of 1.2\n")
    machine.go(NEWER, config_file=tmp_path / "c.toml")
    assert machine.upgrade().back_to("1.1", keep=2).result == "rolled_back"
    assert (machine.disk.current.id, machine.configuration) == (NEW.id, "# edited since\n")
    report = machine.upgrade().back_to("1.0", keep=2)
    assert (report.result, report.edits_folder) == ("rolled_back", None)
    assert (machine.disk.current.id, machine.configuration) == (OLD.id, "# edited since\n")
    assert machine.drop_ins() == {"own": "[Service]\nNice=2\n"}
    assert machine.upgrade().back_to("1.2", keep=2).result == "rolled_back"
    assert machine.configuration == "# of 1.2\n", "1.2 was left after the edit, with a configuration of its own"


def test_the_list_says_where_a_rollback_goes_and_that_a_second_one_goes_forward_again(machine: Machine) -> None:
    def lines() -> list[str]:
        ids = [one.id for one in reversed(machine.state.releases()) if one.id != machine.disk.current.id]
        return kept_lines(ids, set(machine.disk.staged), machine.state.last_report())

    assert lines() == []
    machine.go()
    machine.go(NEWER)
    goes = "edgellm upgrade --rollback goes to"
    assert lines() == [
        *(f"{NEW.id}  kept", f"{OLD.id}  kept"),
        f"{goes} {NEW.id}, which served last before this one; --rollback {OLD.id} goes further back",
    ]
    machine.upgrade().back_to(None, keep=2)
    *listed, line = lines()
    assert listed == [f"{NEWER.id}  kept", f"{OLD.id}  kept"]
    assert line == (
        f"{goes} {NEWER.id}, which served last before this one and was left by a rollback: forward again; "
        f"--rollback {OLD.id} goes further back"
    )
    machine.upgrade().back_to(None, keep=2)
    assert machine.disk.current.id == NEWER.id
    del machine.disk.staged[NEW.id]
    assert lines()[:1] == [f"{NEW.id}  gone from the disk"]
    assert lines()[-1].startswith(f"{goes} {OLD.id},")


def test_a_file_that_was_removed_stays_away_over_two_rollbacks(machine: Machine) -> None:
    machine.drop_in("own").write_text("[Service]\nNice=1\n")
    machine.disk.changes_nothing = True
    machine.go()
    machine.drop_in("own").unlink()
    machine.go(NEWER)
    machine.drop_in("own").write_text("[Service]\nNice=3\n")
    assert machine.upgrade().back_to("1.1", keep=2).result == "rolled_back"
    assert machine.drop_ins() == {"own": "[Service]\nNice=3\n"}
    machine.drop_in("own").unlink()
    assert machine.upgrade().back_to("1.0", keep=2).result == "rolled_back"
    assert machine.drop_ins() == {}


def test_what_an_earlier_release_of_edgellm_wrote_of_edits_is_read(machine: Machine) -> None:
    machine.go()
    written = machine.state.folder / "placed.json"
    files = json.loads(written.read_text())["files"]
    written.write_text(json.dumps({"format": 1, "files": files}))
    assert machine.upgrade().back_to(None, keep=2).result == "rolled_back"
    assert machine.configuration == BEFORE
    machine.paths.configuration.write_text("# edited since\n")
    assert machine.upgrade().back_to("1.1", keep=2).result == "rolled_back"
    assert machine.configuration == "# edited since\n"


def test_edits_that_the_earlier_release_refuses_are_saved_and_come_back_with_the_later_one(machine: Machine) -> None:
    machine.go()
    machine.disk.refuses = "novelty"
    machine.paths.configuration.write_text("novelty = 1\n")
    machine.drop_in("new").write_text("[Service]\nNice=4\n")
    report = machine.upgrade().back_to(None, keep=2)
    assert (report.result, machine.disk.current.id, machine.configuration) == ("rolled_back", OLD.id, BEFORE)
    assert machine.drop_ins() == {}
    assert report.edits_folder is not None
    saved = Path(report.edits_folder)
    assert (saved / "etc/edgellm/edgellm.toml").read_text() == "novelty = 1\n"
    assert (saved / "etc/systemd/system/edgellm.service.d/new.conf").read_text() == "[Service]\nNice=4\n"
    assert saved.stat().st_mode & 0o777 == 0o700
    line = report_line(report.as_json())
    assert "novelty is no setting" in line
    assert line.endswith(f"what was edited since is in {saved}")
    assert machine.upgrade().back_to("1.1", keep=2).edits_folder is None
    assert (machine.disk.current.id, machine.configuration) == (NEW.id, "novelty = 1\n")
    assert machine.drop_ins() == {"new": "[Service]\nNice=4\n"}
    again = machine.upgrade().back_to(None, keep=2)
    assert again.edits_folder is None, "nobody edited anything since: each release has its own again"
    assert machine.configuration == BEFORE


@pytest.mark.parametrize("write", range(1, 14))
def test_a_power_cut_in_a_rollback_loses_no_edit(machine: Machine, write: int) -> None:
    machine.go()
    machine.disk.refuses = "novelty"
    machine.paths.configuration.write_text("novelty = 1\n")
    machine.cut_at(write, before_it=False)
    with pytest.raises(PowerCutError):
        machine.upgrade().back_to(None, keep=2)
    machine.power_returns()
    machine.upgrade().recover()
    if machine.disk.current.id == NEW.id:
        assert machine.configuration == "novelty = 1\n"
    assert machine.upgrade().resume(lambda text: Source(Kind.VENV)).result in ("rolled_back", "unchanged")
    assert (machine.disk.current.id, machine.configuration) == (OLD.id, BEFORE)
    (saved,) = machine.state.folder.glob("edits/*/etc/edgellm/edgellm.toml")
    assert saved.read_text() == "novelty = 1\n"


def test_an_edit_while_a_release_is_tried_outlives_its_failure(machine: Machine) -> None:
    machine.smoke_fails_for = NEW.version
    machine.disk.changes_nothing = True
    machine.edit_in_smoke = "# edited meanwhile\n"
    assert machine.go().result == "returned"
    assert (machine.disk.current.id, machine.configuration) == (OLD.id, "# edited meanwhile\n")


def test_another_configuration_for_the_release_that_serves_is_an_edit(machine: Machine, tmp_path: Path) -> None:
    machine.go()
    (tmp_path / "other.toml").write_text("# other\n")
    assert machine.go(config_file=tmp_path / "other.toml").result == "upgraded"
    assert machine.upgrade().back_to("1.0", keep=2).result == "rolled_back"
    assert machine.configuration == "# other\n"


def test_old_releases_go_with_what_was_kept_for_them(machine: Machine) -> None:
    machine.go()
    machine.go(NEWER, keep=1)
    assert set(machine.disk.staged) == {NEW.id, NEWER.id}
    assert machine.disk.pinned == {"engine-1"}, "the release that is kept needs it still"
    assert machine.go(NEW, keep=0).result == "upgraded"
    assert set(machine.disk.staged) == {NEW.id}


def test_the_same_release_with_another_configuration_costs_no_earlier_one_its_place(
    machine: Machine, tmp_path: Path
) -> None:
    machine.go()
    for number in range(3):
        (tmp_path / "other.toml").write_text(f"# {number}\n")
        assert machine.go(config_file=tmp_path / "other.toml").result == "upgraded"
        assert machine.configuration == f"# {number}\n"
        assert [one.id for one in machine.state.releases()] == [OLD.id, NEW.id]
    assert set(machine.disk.staged) == {OLD.id, NEW.id}
    assert machine.disk.pinned == {"engine-1"}, "the release that is kept needs it still"


def test_the_floor_is_raised_by_what_serves_and_never_lowered(machine: Machine) -> None:
    assert machine.go(floor="1.1").result == "upgraded"
    with pytest.raises(VersionFloorError, match=r"edgellm 1\.0 is older than 1\.1"):
        machine.upgrade().back_to(None, keep=2)
    with pytest.raises(VersionFloorError, match=r"edgellm 1\.0 is older than 1\.1"):
        machine.go(OLD)
    assert machine.state.raise_floor(Version("0.5")) == Version("1.1")


def test_a_floor_of_the_release_that_serves_is_set_too(machine: Machine) -> None:
    machine.go()
    assert machine.go(floor="1.1").result == "unchanged"
    assert machine.state.floor() == Version("1.1")
    with pytest.raises(VersionFloorError, match=r"edgellm 1\.0 is older than 1\.1"):
        machine.upgrade().back_to(None, keep=2)


def test_what_a_source_brings_beside_its_release_is_asked_for_again(machine: Machine) -> None:
    """The power went after the release was there and before the rest was."""
    machine.cut_at(3, before_it=False)
    with pytest.raises(PowerCutError):
        machine.go()
    machine.power_returns()
    machine.upgrade().recover()
    journey = machine.state.journey()
    assert journey is not None
    assert journey.to_release == NEW
    assert NEW.id in machine.disk.staged
    asked: list[str] = []

    def open_again(text: str) -> Source:
        asked.append(text)
        return Source(Kind.VENV)

    assert machine.upgrade().resume(open_again).result == "upgraded"
    assert asked == ["wheel"]


def test_a_release_that_fails_raises_no_floor(machine: Machine) -> None:
    machine.smoke_fails_for = NEW.version
    machine.go(floor="1.1")
    assert machine.state.floor() is None


def test_one_at_a_time(machine: Machine) -> None:
    with (
        machine.state.locked(),
        pytest.raises(UpgradeRunningError, match="another upgrade runs"),
        machine.state.locked(),
    ):
        pass
    assert machine.paths.state.stat().st_mode & 0o777 == 0o700


def prepared(machine: Machine) -> UpgradeReport:
    return machine.upgrade().to_source(Source(Kind.VENV), "wheel", keep=2, only_prepare=True)


def test_a_prepared_release_waits_beside_the_one_that_serves(machine: Machine) -> None:
    report = prepared(machine)
    assert (report.result, report.to_release, report.serving) == ("prepared", NEW.id, OLD.id)
    assert (machine.disk.current, machine.configuration) == (OLD, BEFORE)
    assert set(machine.disk.staged) == {OLD.id, NEW.id}
    assert machine.upgrade().recover() is None, "a boot leaves it as it is"
    assert machine.upgrade().prewarm().result == "prepared"
    assert machine.upgrade().prewarm().result == "prepared"
    assert machine.disk.current == OLD
    machine.steps.clear()
    assert machine.upgrade().resume(lambda text: Source(Kind.VENV)).result == "upgraded"
    assert next(one.step.value for one in machine.steps if one.seconds is not None) == "drained"
    assert machine.disk.current == NEW


def test_a_kept_release_is_prepared_too(machine: Machine) -> None:
    machine.go()
    assert machine.upgrade().back_to(None, keep=2, only_prepare=True).result == "prepared"
    assert machine.disk.current == NEW
    assert machine.upgrade().resume(lambda text: Source(Kind.VENV)).result == "rolled_back"
    assert (machine.disk.current.id, machine.configuration) == (OLD.id, BEFORE)


def test_what_was_prepared_in_vain_takes_no_room(machine: Machine) -> None:
    with pytest.raises(UpgradeError, match="no release is prepared"):
        machine.upgrade().prewarm()
    prepared(machine)
    machine.disk.fails_at = "prewarm"
    report = machine.upgrade().prewarm()
    assert (report.result, report.step, report.reason) == ("returned", "staged", "no room for the engine")
    assert (machine.disk.staged, machine.disk.pinned) == ({OLD.id: OLD}, set())
    machine.disk.fails_at = ""
    prepared(machine)
    report = machine.upgrade().abandon()
    assert (report.result, report.serving, report.exit_code) == ("abandoned", OLD.id, 0)
    assert (machine.disk.staged, machine.disk.pinned) == ({OLD.id: OLD}, set())
    assert machine.upgrade().abandon().result == "unchanged"
    prepared(machine)
    assert machine.go(NEWER).result == "upgraded"
    assert set(machine.disk.staged) == {OLD.id, NEWER.id}


@pytest.mark.parametrize("has_booted", [True, False])
@pytest.mark.parametrize("write", range(2, WRITES + 1))
def test_what_was_cut_anywhere_can_be_abandoned(machine: Machine, write: int, has_booted: bool) -> None:
    machine.cut_at(write, before_it=False)
    with pytest.raises(PowerCutError):
        machine.go()
    machine.power_returns()
    if has_booted:
        machine.upgrade().recover()
    report = machine.upgrade().abandon()
    # What a smoke chat was answered by is kept: nothing but its end was missing.
    is_new = machine.disk.current == NEW
    assert is_new == (write >= WRITES - 2)
    assert report.result == ("abandoned" if not is_new else "unchanged" if has_booted else "upgraded")
    assert machine.configuration == (AFTER if is_new else BEFORE)
    assert machine.state.journey() is None
    assert is_new or set(machine.disk.staged) == {OLD.id}
