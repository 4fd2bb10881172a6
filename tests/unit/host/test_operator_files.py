"""What an administrator wrote: what drop-ins set, as systemd reads them, and what was edited since."""

from __future__ import annotations

from pathlib import Path

from edgellm.host.operator_files import (
    CONFIGURATION,
    SERVICE_DROP_INS,
    drop_in_environment,
    edited_since,
    operator_files,
    save_copies,
)
from edgellm.host.paths import HostPaths


def write(paths: HostPaths, name: str, text: str) -> None:
    paths.at(name).parent.mkdir(parents=True, exist_ok=True)
    paths.at(name).write_text(text)


def test_variables_of_drop_ins_are_those_that_systemd_sets(tmp_path: Path) -> None:
    paths = HostPaths(tmp_path)
    assert drop_in_environment(paths) == {}
    write(
        paths, f"{SERVICE_DROP_INS}/10-one.conf", '[Service]\nEnvironment=A=1 "B=two words"\nNice=3\n#Environment=C=1\n'
    )
    write(paths, f"{SERVICE_DROP_INS}/20-two.conf", '[Service]\nEnvironment = A=2\nEnvironment="D=1\n')
    write(paths, f"{SERVICE_DROP_INS}/30-saved.conf.before", "[Service]\nEnvironment=E=1\n")
    assert drop_in_environment(paths) == {"A": "2", "B": "two words"}
    write(paths, f"{SERVICE_DROP_INS}/40-none.conf", "[Service]\nEnvironment=\nEnvironment=F=1\n")
    assert drop_in_environment(paths) == {"F": "1"}


def test_what_is_as_an_upgrade_placed_it_was_not_edited(tmp_path: Path) -> None:
    paths, drop_in = HostPaths(tmp_path), f"{SERVICE_DROP_INS}/10-one.conf"
    write(paths, CONFIGURATION, "kept")
    kept = operator_files(paths)
    write(paths, CONFIGURATION, "placed")
    placed = {**operator_files(paths), drop_in: None}
    assert edited_since(paths, placed, kept) == set()
    assert edited_since(paths, {}, kept) == {CONFIGURATION}
    write(paths, drop_in, "[Service]\n")
    assert edited_since(paths, placed, kept) == {drop_in}
    paths.at(CONFIGURATION).unlink()
    assert edited_since(paths, placed, kept) == {CONFIGURATION, drop_in}
    save_copies(paths, edited_since(paths, placed, kept), tmp_path / "saved")
    assert [path.name for path in (tmp_path / "saved").rglob("*") if path.is_file()] == ["10-one.conf"]
    assert {path.stat().st_mode & 0o77 for path in (tmp_path / "saved").rglob("*")} == {0}
