"""What a bundle brings beside the release: compared by content, counted before anything is written, whole or gone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.conftest import mounted_memory
from tests.unit.host.extras import ENGINE, MODEL, bundle_of
from tests.unit.host.test_upgrade import NEW, OLD, FakeUnit, Machine, PowerCutError

from edgellm.errors import HostSpaceError
from edgellm.host.bundle_extras import BundleExtras, unfinished_of
from edgellm.host.disk_room import Need, require_room_for_all
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind, Release
from edgellm.host.source import Source
from edgellm.host.upgrade_report import UpgradeReport

PLACES = {MODEL: "var/lib/edgellm/models/small/small.gguf", ENGINE: "var/lib/edgellm/import/small.tar.zst"}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path / "host", monkeypatch)
    machine.paths.service_data.mkdir(parents=True)
    return machine


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Four megabytes."""
    with mounted_memory(tmp_path / "small", "4m") as folder:
        yield folder


def upgrade(machine: Machine, folder: Path, offered: Release = NEW) -> UpgradeReport:
    return machine.upgrade(offered).to_source(Source(Kind.VENV, extras=folder), "bundle", keep=2)


@pytest.mark.parametrize("release", [OLD, NEW], ids=["the_same_release", "another_release"])
@pytest.mark.parametrize("name", [MODEL, ENGINE])
def test_a_file_of_the_same_size_with_other_bytes_is_replaced_and_named(
    machine: Machine, tmp_path: Path, name: str, release: Release
) -> None:
    there = machine.paths.at(PLACES[name])
    there.parent.mkdir(parents=True)
    there.write_bytes(b"old weights")
    bundle = bundle_of(tmp_path / "bundle", {name: b"new weights"})
    report = upgrade(machine, bundle, release)
    assert report.result == "upgraded"
    assert there.read_bytes() == b"new weights"
    assert report.notes == [f"replaced {there}: its bytes were not those of the bundle"]
    again = upgrade(machine, bundle, release)
    assert (again.result, list(again.notes)) == ("unchanged", [])


def test_what_is_there_with_its_bytes_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    there = machine.paths.at(PLACES[MODEL])
    there.parent.mkdir(parents=True)
    there.write_bytes(b"weights")
    before = there.stat().st_ino
    report = upgrade(machine, bundle_of(tmp_path / "bundle", {MODEL: b"weights", ENGINE: b"engine"}))
    assert (report.result, list(report.notes)) == ("upgraded", [])
    assert there.stat().st_ino == before
    assert machine.paths.at(PLACES[ENGINE]).read_bytes() == b"engine"


def test_a_replaced_file_is_named_also_where_the_release_did_not_serve(machine: Machine, tmp_path: Path) -> None:
    there = machine.paths.at(PLACES[MODEL])
    there.parent.mkdir(parents=True)
    there.write_bytes(b"old weights")
    FakeUnit.fails_for = NEW.version
    report = upgrade(machine, bundle_of(tmp_path / "bundle", {MODEL: b"new weights"}))
    assert report.result == "returned"
    assert len(report.notes) == 1


def test_what_does_not_fit_is_refused_with_both_numbers_and_nothing_is_written(
    machine: Machine, tmp_path: Path, small_disk: Path
) -> None:
    bundle = bundle_of(tmp_path / "bundle", {MODEL: bytes(5_000_000)})
    shutil.rmtree(machine.paths.service_data)
    machine.paths.service_data.symlink_to(small_disk)
    with pytest.raises(HostSpaceError, match=r"/models: what the bundle brings needs up to 205\.0 MB, and 4\.2 MB are"):
        upgrade(machine, bundle)
    assert list(small_disk.iterdir()) == []
    assert machine.steps == []
    assert machine.state.journey() is None
    assert machine.disk.staged == {OLD.id: OLD}


def test_needs_of_one_file_system_count_together(tmp_path: Path) -> None:
    share_bytes = int(shutil.disk_usage(tmp_path).free * 0.6)
    release, extras = Need(tmp_path / "opt", share_bytes, "the release"), Need(tmp_path, share_bytes, "the bundle")
    require_room_for_all([release], 0, "make room")
    require_room_for_all([extras], 0, "make room")
    with pytest.raises(HostSpaceError, match="the release with the bundle needs up to"):
        require_room_for_all([release, extras], 0, "make room")


def test_a_file_in_another_s_place_needs_room_beside_it(machine: Machine, tmp_path: Path) -> None:
    there = machine.paths.at(PLACES[MODEL])
    there.parent.mkdir(parents=True)
    there.write_bytes(bytes(1_000_000))
    bundle = bundle_of(tmp_path / "bundle", {MODEL: b"1" * 1_000_000, ENGINE: b"2" * 300_000})
    needs = {need.place.name: need.size_bytes for need in BundleExtras(bundle, machine.paths).needs()}
    assert needs == {"models": 1_004_096, "import": 604_096}


def test_a_disk_that_fills_up_is_named_and_nothing_stays_of_what_was_brought(tmp_path: Path, small_disk: Path) -> None:
    paths = HostPaths(small_disk)
    paths.service_data.mkdir(parents=True)
    other = paths.service_data / "models/other/other.gguf"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"other")
    names = [f"models/new/{number}.gguf" for number in range(3)]
    bundle = bundle_of(tmp_path / "bundle", {name: bytes(1_800_000) for name in names})
    with pytest.raises(HostSpaceError, match=r"/models/new/2\.gguf: the disk is full, 0\.\d MB are free — make room"):
        BundleExtras(bundle, paths).bring()
    assert [path for path in small_disk.rglob("*") if path.is_file()] == [other]
    assert not (paths.service_data / "models/new").exists()


@pytest.mark.parametrize("verb", ["upgrade", "rollback", "abandon", "recover"])
def test_what_a_power_cut_left_of_a_copy_goes_with_the_next_verb(machine: Machine, tmp_path: Path, verb: str) -> None:
    machine.go()
    left = unfinished_of(machine.paths.at(PLACES[MODEL]))
    machine.cut_at(3, before_it=False)
    with pytest.raises(PowerCutError):
        upgrade(machine, bundle_of(tmp_path / "bundle", {MODEL: b"weights"}), OLD)
    machine.power_returns()
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"wei")
    if verb == "upgrade":
        machine.go(NEW)
    elif verb == "rollback":
        machine.upgrade().back_to(None, keep=2)
    elif verb == "abandon":
        machine.upgrade().abandon()
    else:
        machine.upgrade().recover()
    assert not left.exists()
