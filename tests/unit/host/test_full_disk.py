"""A disk without a free byte: an upgrade can still be undone, and says what is wrong in the project's own words."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.conftest import mounted_memory
from tests.unit.host.test_upgrade import BEFORE, NEW, NEWER, OLD, Machine, PowerCutError

from edgellm.errors import HostSpaceError
from edgellm.host import upgrade as upgrade_module
from edgellm.host.disk_reserve import NAME, RESERVE_BYTES
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind
from edgellm.host.snapshot import take_snapshot as whole
from edgellm.host.source import Source

FILLER = "filler"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """All of it on one disk of 16 MB, as a board has it."""
    monkeypatch.setattr(upgrade_module, "SPARE_BYTES", 0)
    with mounted_memory(tmp_path / "disk", "16m") as folder:
        machine = Machine(folder / "host", monkeypatch)
        machine.paths.service_data.mkdir(parents=True)
        yield machine


def fill(machine: Machine) -> None:
    try:
        with (machine.paths.root / FILLER).open("wb", 0) as stream:
            while True:
                stream.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC  # noqa: PT017


def cut_while_staging(machine: Machine) -> None:
    machine.cut_at(3, before_it=False)
    with pytest.raises(PowerCutError), machine.state.locked():
        machine.go(NEWER)
    machine.power_returns()


def test_an_interrupted_upgrade_is_abandoned(machine: Machine) -> None:
    cut_while_staging(machine)
    fill(machine)
    with machine.state.locked():
        report = machine.upgrade().abandon()
    assert (report.result, report.serving, machine.configuration) == ("abandoned", OLD.id, BEFORE)
    assert machine.state.journey() is None


def test_it_is_abandoned_without_the_reserve_too(machine: Machine) -> None:
    cut_while_staging(machine)
    (machine.state.folder / NAME).unlink()
    fill(machine)
    with machine.state.locked():
        assert machine.upgrade().abandon().result == "abandoned"
    assert machine.state.journey() is None
    assert machine.state.last_report() is None


def test_the_release_of_before_is_gone_back_to(machine: Machine) -> None:
    with machine.state.locked():
        machine.go()
    assert (machine.state.folder / NAME).stat().st_size == RESERVE_BYTES
    fill(machine)
    with machine.state.locked():
        report = machine.upgrade().back_to(None, keep=2)
    assert (report.result, report.serving, machine.configuration) == ("rolled_back", OLD.id, BEFORE)


def test_the_boot_after_a_power_cut_puts_back_what_was(machine: Machine) -> None:
    cut_while_staging(machine)
    fill(machine)
    with machine.state.locked():
        report = machine.upgrade().recover()
    assert report is not None
    assert (report.result, machine.disk.current) == ("returned", OLD)


def test_an_upgrade_is_refused_with_the_numbers(machine: Machine) -> None:
    fill(machine)
    with pytest.raises(HostSpaceError, match=r"the disk is full, 0\.0 MB are free — make room there"):
        machine.upgrade(NEW).to_source(Source(Kind.VENV), "wheel", keep=2)
    assert machine.disk.current == OLD


def test_one_that_fills_up_on_the_way_is_undone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = machine.disk.staged

    def take_snapshot(paths: HostPaths, folder: Path) -> None:
        fill(machine)
        whole(paths, folder)

    monkeypatch.setattr(upgrade_module, "take_snapshot", take_snapshot)
    report = machine.go()
    assert (report.result, report.serving, machine.disk.current) == ("returned", OLD.id, OLD)
    assert report.reason is not None
    assert "No space left on device" in report.reason
    assert set(staged) == {OLD.id}
    assert machine.state.journey() is None


def test_the_reserve_is_made_again_where_there_is_room(machine: Machine) -> None:
    with machine.state.locked():
        pass
    assert not (machine.state.folder / NAME).exists(), "nothing was done here"
    with machine.state.locked():
        machine.go()
    fill(machine)
    with machine.state.locked():
        assert not (machine.state.folder / NAME).exists()
    (machine.paths.root / FILLER).unlink()
    with machine.state.locked():
        pass
    assert (machine.state.folder / NAME).stat().st_size == RESERVE_BYTES
