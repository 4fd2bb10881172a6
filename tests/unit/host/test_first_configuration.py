"""Configuration and key of a bundle reach /etc when nothing about it was refused, and a mended bundle mends them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.store.conftest import mounted_memory
from tests.unit.host.extras import MODEL, bundle_of
from tests.unit.host.test_bundle import make_inputs, run_bundle
from tests.unit.host.test_upgrade import AFTER, NEW, FakeUnit, Machine

from edgellm.errors import (
    HostSpaceError,
    ReleaseSourceError,
    ReleaseUntrustedError,
    UpgradeError,
    UpgradeReturnedError,
    VersionFloorError,
)
from edgellm.host.release import Kind
from edgellm.host.source import Source, open_source
from edgellm.host.upgrade_report import UpgradeReport
from edgellm.host.versions import Version

FIRST, MENDED, EDITED = "# of the first bundle\n", "# of the mended bundle\n", "# by hand\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Without a configuration, and nothing runs."""
    machine = Machine(tmp_path / "host", monkeypatch)
    machine.paths.service_data.mkdir(parents=True)
    machine.paths.configuration.unlink()
    machine.paths.configuration.parent.rmdir()
    machine.disk.brings_example = True
    FakeUnit.runs = False
    return machine


def source_of(folder: Path, configuration: str, key: Path | None = None, **files: bytes) -> Source:
    folder.mkdir()
    bundle_of(folder, {"edgellm.toml": configuration.encode(), **files})
    return Source(Kind.VENV, extras=folder, publisher_key=key)


def install(machine: Machine, source: Source) -> UpgradeReport:
    """As install.sh has it: where units are, it is an upgrade."""
    if machine.disk.current == NEW:
        return machine.upgrade().to_source(source, "bundle", keep=2)
    return machine.upgrade().first(source)


def test_a_first_bundle_brings_both(machine: Machine, tmp_path: Path) -> None:
    key = tmp_path / "publisher.pub"
    key.write_text("ssh-ed25519 AAAA\n")
    report = install(machine, source_of(tmp_path / "bundle", FIRST, key))
    assert (report.result, list(report.notes)) == ("installed", [])
    assert machine.configuration == FIRST
    assert machine.paths.configuration.stat().st_mode & 0o777 == 0o644
    kept = machine.paths.trusted_keys / "publisher.pub"
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("ssh-ed25519 AAAA\n", 0o644)


def test_a_version_below_the_floor_leaves_nothing(machine: Machine, tmp_path: Path) -> None:
    machine.state.raise_floor(Version("2.0"))
    with pytest.raises(VersionFloorError):
        install(machine, source_of(tmp_path / "bundle", FIRST, tmp_path / "publisher.pub"))
    assert not machine.paths.configuration.parent.exists()


def test_a_disk_that_is_too_small_leaves_nothing(machine: Machine, tmp_path: Path) -> None:
    shutil.rmtree(machine.paths.service_data)
    with mounted_memory(machine.paths.service_data, "1m"):
        source = source_of(tmp_path / "bundle", FIRST, tmp_path / "publisher.pub", **{MODEL: bytes(2_000_000)})
        with pytest.raises(HostSpaceError):
            install(machine, source)
        assert list(machine.paths.service_data.iterdir()) == []
    assert not machine.paths.configuration.parent.exists()


def test_a_release_that_cannot_be_made_leaves_nothing(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade = machine.upgrade()

    def stage(source: Source) -> None:
        raise ReleaseSourceError("a wheel is missing")

    monkeypatch.setattr(upgrade._releases, "stage", stage)
    with pytest.raises(ReleaseSourceError):
        upgrade.first(source_of(tmp_path / "bundle", FIRST, tmp_path / "publisher.pub"))
    assert not machine.paths.configuration.parent.exists()


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        (["--architecture", "aarch64"], Kind.VENV, "is for aarch64, and this machine is"),
        ([], Kind.CONTAINER, "has no image.tar, and this machine runs edgellm as a container"),
    ],
)
def test_a_bundle_for_other_machines_leaves_nothing(
    machine: Machine,
    tmp_path: Path,
    signing_key: Path,
    options: list[str],
    kind: Kind,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_inputs(tmp_path)
    made = run_bundle(
        *("bundle", "--wheels", "wheels", "--config", "edgellm.toml", "--sign", str(signing_key), *options),
        folder=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    key = Path(f"{signing_key}.pub")
    with pytest.raises(ReleaseSourceError, match=said):
        open_source(str(tmp_path / "bundle"), kind, machine.paths, publisher_key=key)
    assert not machine.paths.configuration.parent.exists()


def test_a_key_that_is_to_be_trusted_counts_for_this_bundle_and_no_other_does(
    machine: Machine, tmp_path: Path, signing_key: Path, other_key: Path
) -> None:
    make_inputs(tmp_path)
    made = run_bundle("bundle", "--wheels", "wheels", "--sign", str(signing_key), folder=tmp_path)
    assert made.returncode == 0, made.stderr
    bundle = str(tmp_path / "bundle")
    key = Path(f"{signing_key}.pub")
    assert open_source(bundle, Kind.VENV, machine.paths, publisher_key=key).publisher_key == key
    with pytest.raises(ReleaseUntrustedError):
        open_source(bundle, Kind.VENV, machine.paths, publisher_key=Path(f"{other_key}.pub"))


@pytest.mark.parametrize("where", ["prewarm", "start", "smoke"])
def test_what_did_not_serve_is_mended_by_the_next_bundle(machine: Machine, tmp_path: Path, where: str) -> None:
    if where == "start":
        FakeUnit.fails_for = NEW.version
    elif where == "smoke":
        machine.smoke_fails_for = NEW.version
    else:
        machine.disk.fails_at = where
    with pytest.raises(UpgradeError):
        install(machine, source_of(tmp_path / "first", FIRST))
    assert machine.configuration == FIRST
    machine.disk.fails_at = FakeUnit.fails_for = machine.smoke_fails_for = ""
    FakeUnit.runs = where == "smoke"  # it started, and answered wrongly
    report = install(machine, source_of(tmp_path / "mended", MENDED))
    assert report.result == ("upgraded" if where == "smoke" else "started")
    assert machine.configuration == MENDED
    assert list(report.notes) == []
    # From then on it is the administrator's.
    FakeUnit.runs = True
    later = install(machine, source_of(tmp_path / "later", FIRST))
    assert machine.configuration == MENDED
    kept = f"kept {machine.paths.configuration}: {tmp_path}/later/edgellm.toml is for machines that have none"
    assert (later.result, list(later.notes)) == ("unchanged", [kept])


def test_what_was_edited_before_it_served_stays(machine: Machine, tmp_path: Path) -> None:
    machine.disk.fails_at = "prewarm"
    with pytest.raises(UpgradeError):
        install(machine, source_of(tmp_path / "first", FIRST))
    machine.disk.fails_at = ""
    machine.paths.configuration.write_text(EDITED)
    report = install(machine, source_of(tmp_path / "mended", MENDED))
    assert (report.result, machine.configuration) == ("started", EDITED)
    assert len(report.notes) == 1
    assert report.exit_code != UpgradeReturnedError.exit_code


def test_a_machine_that_has_served_without_one_gets_none_by_an_upgrade(machine: Machine, tmp_path: Path) -> None:
    FakeUnit.runs = True
    assert install(machine, Source(Kind.VENV)).result == "installed"
    assert install(machine, source_of(tmp_path / "later", FIRST)).result == "unchanged"
    assert machine.configuration == AFTER


def test_the_example_that_an_installation_writes_stands_in_no_bundle_s_way(machine: Machine, tmp_path: Path) -> None:
    machine.disk.fails_at = "prewarm"
    with pytest.raises(UpgradeError):
        install(machine, Source(Kind.VENV))
    assert machine.configuration == AFTER
    machine.disk.fails_at = ""
    assert install(machine, source_of(tmp_path / "mended", MENDED)).result == "started"
    assert machine.configuration == MENDED
