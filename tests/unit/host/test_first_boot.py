"""Steps of the first boot that need no device: names, disks, state, identity, and what a power cut leaves of them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgellm.errors import ConfigError, FirstBootError
from edgellm.host.board_name import ALPHABET, PREFIX, board_name, take_name
from edgellm.host.commands import Said
from edgellm.host.first_boot import IMAGE_MANIFEST, FirstBoot
from edgellm.host.first_boot_state import BootStep, FirstBootState
from edgellm.host.paths import HostPaths
from edgellm.host.root_growth import RootPartition, grow_root, root_partition


class Recorded:
    """Stands for the programs that change a disk."""

    def __init__(self, **codes: int) -> None:
        self.calls: list[list[str]] = []
        self._codes = codes

    def __call__(self, argv: Sequence[str]) -> Said:
        self.calls.append(list(argv))
        return Said(self._codes.get(argv[0], 0), "", "no good")


def has_all(name: str) -> bool:
    return True


def has_none(name: str) -> bool:
    return False


def on_partition(root: Path, kind: str, partition: str | None = "1") -> HostPaths:
    """A kernel whose root file system lies on /dev/nvme0n1p1, or on the whole disk."""
    disk = root / "sys/devices/pci/nvme0n1"
    block = disk / "nvme0n1p1" if partition else disk
    block.mkdir(parents=True)
    if partition:
        (block / "partition").write_text(f"{partition}\n")
    (root / "sys/dev/block").mkdir(parents=True)
    (root / "sys/dev/block/259:1").symlink_to(block)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(
        "20 1 0:19 / /proc rw - proc proc rw\n"
        f"21 1 259:1 / / rw,relatime shared:1 - {kind} /dev/root rw\n"
        "22 21 259:1 /var / rw - ext4 /dev/root rw\n"
    )
    return HostPaths(root)


def test_a_partition_and_its_file_system_grow_to_the_disk(tmp_path: Path) -> None:
    paths, programs = on_partition(tmp_path, "ext4"), Recorded()
    assert root_partition(paths) == RootPartition("/dev/nvme0n1p1", "/dev/nvme0n1", 1, "ext4")
    assert "fills its disk" in grow_root(paths, programs, has_all)
    assert programs.calls == [["growpart", "/dev/nvme0n1", "1"], ["resize2fs", "/dev/nvme0n1p1"]]
    assert "fills its disk" in grow_root(paths, Recorded(growpart=1), has_all)  # nothing to grow
    with pytest.raises(FirstBootError, match="growpart /dev/nvme0n1 1: no good"):
        grow_root(paths, Recorded(growpart=2), has_all)
    with pytest.raises(FirstBootError, match="resize2fs"):
        grow_root(paths, Recorded(resize2fs=1), has_all)


@pytest.mark.parametrize(
    ("kind", "command"), [("xfs", ["xfs_growfs", "/"]), ("btrfs", ["btrfs", "filesystem", "resize", "max", "/"])]
)
def test_other_file_systems_grow_by_their_own_tool(tmp_path: Path, kind: str, command: list[str]) -> None:
    programs = Recorded()
    grow_root(on_partition(tmp_path, kind, partition=None), programs, has_all)
    assert programs.calls == [command]


def test_what_cannot_grow_is_left_with_a_note(tmp_path: Path) -> None:
    programs = Recorded()
    assert "nothing to grow" in grow_root(HostPaths(tmp_path), programs, has_all)
    paths = on_partition(tmp_path, "ext4")
    assert "resize2fs is not on this machine" in grow_root(paths, programs, has_none)
    assert "growpart is not on this machine" in grow_root(paths, programs, lambda name: name == "resize2fs")
    other = on_partition(tmp_path / "other", "zfs")
    assert "not known how to grow it" in grow_root(other, programs, has_all)
    assert programs.calls == []


def board_of(root: Path, serial: str = "", machine_id: str = "0" * 32) -> HostPaths:
    for name, text in (("proc/device-tree/serial-number", f"{serial}\0"), ("etc/machine-id", f"{machine_id}\n")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return HostPaths(root)


def test_a_board_is_named_by_its_serial_number(tmp_path: Path) -> None:
    name = board_name(board_of(tmp_path / "one", "1420123456789"))
    assert name.startswith(PREFIX)
    assert set(name.removeprefix(PREFIX)) <= set(ALPHABET)
    assert board_name(board_of(tmp_path / "two", "1420123456789", "1" * 32)) == name  # flashed anew
    assert board_name(board_of(tmp_path / "three", "1420123456780")) != name
    without = [board_name(board_of(tmp_path / str(number), "None", f"{number:032x}")) for number in range(20)]
    assert len(set(without)) == 20


def test_a_name_is_taken_once_and_an_administrators_stays(tmp_path: Path) -> None:
    paths = board_of(tmp_path, "1420123456789")
    paths.at("etc/hostname").write_text("tegra-ubuntu\n")
    paths.at("etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 tegra-ubuntu\n::1 localhost\n")
    name = take_name(paths)
    assert name == board_name(paths)
    assert take_name(paths) == name
    assert paths.at("etc/hostname").read_text() == f"{name}\n"
    hosts = paths.at("etc/hosts").read_text().splitlines()
    assert hosts == ["127.0.0.1 localhost", "::1 localhost", f"127.0.1.1\t{name}.local {name}"]
    paths.at("etc/hostname").write_text("kitchen\n")
    assert take_name(paths) == "kitchen, as it was set"
    assert paths.at("etc/hostname").read_text() == "kitchen\n"


def test_the_state_says_what_was_under_way(tmp_path: Path) -> None:
    state = FirstBootState(tmp_path / "state")
    assert not state.was_begun(BootStep.IDENTITY)
    state.begin(BootStep.IDENTITY)
    again = FirstBootState(tmp_path / "state")
    assert again.was_begun(BootStep.IDENTITY)
    assert not again.is_done(BootStep.IDENTITY)
    again.finish(BootStep.IDENTITY, "well", 0.5)
    again.finish_all()
    over = FirstBootState(tmp_path / "state")
    assert over.is_done(BootStep.IDENTITY)
    assert over.is_over
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    (tmp_path / "state/first-boot.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"first-boot\.json is damaged"):
        FirstBootState(tmp_path / "state")


def test_steps_are_taken_once_and_one_that_failed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, bool]] = []
    broken = {"authority"}

    def step(name: str):  # type: ignore[no-untyped-def]
        def take(self: FirstBoot, again: bool) -> str:
            taken.append((name, again))
            if name in broken:
                raise FirstBootError("built to fail")
            return name

        return take

    for name in ("identity", "accounts", "release", "authority", "device_key", "bundles", "service"):
        monkeypatch.setattr(FirstBoot, f"_{name}", step(name))
    paths = board_of(tmp_path, "1420123456789")
    paths.at(IMAGE_MANIFEST).parent.mkdir(parents=True)
    paths.at(IMAGE_MANIFEST).write_text("{}")
    with pytest.raises(FirstBootError, match="built to fail"):
        FirstBoot(paths).run()
    assert [name for name, _ in taken] == ["identity", "accounts", "release", "authority"]
    broken.clear()
    taken.clear()
    noted: list[BootStep] = []
    FirstBoot(paths, lambda step, text, seconds: noted.append(step)).run()
    assert taken == [("authority", True), ("device_key", False), ("bundles", False), ("service", False)]
    assert noted == list(BootStep)[-4:]
    FirstBoot(paths).run()
    assert len(taken) == 4
    steps = json.loads(paths.at("var/lib/edgellm-host/first-boot.json").read_text())["steps"]
    assert list(steps) == [step.value for step in BootStep]


def test_a_machine_that_is_not_made_of_an_image_is_left_alone(tmp_path: Path) -> None:
    """Somebody's own: a new name, other keys and a larger file system are not what they asked for."""
    paths = board_of(tmp_path, "1420123456789")
    (tmp_path / "etc/ssh").mkdir()
    (tmp_path / "etc/ssh/ssh_host_ed25519_key").write_text("of this machine\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(
        ConfigError, match=r"manifest\.json is not there: .* — to set edgellm up on it: edgellm install"
    ):
        FirstBoot(paths).run()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


NEEDED = ("ssh-keygen", "systemd-machine-id-setup")


@pytest.mark.skipif(
    os.environ.get("EDGELLM_CI") != "1" and not all(map(shutil.which, NEEDED)), reason=f"needs {' and '.join(NEEDED)}"
)
def test_an_identity_is_new_whatever_the_image_came_with(tmp_path: Path) -> None:
    (tmp_path / "etc/ssh").mkdir(parents=True)
    (tmp_path / "etc/machine-id").touch()
    (tmp_path / "etc/ssh/ssh_host_ed25519_key").write_text("of the image\n")
    (tmp_path / "etc/ssh/ssh_host_rsa_key").touch()
    FirstBoot(HostPaths(tmp_path))._identity(again=False)
    assert len((tmp_path / "etc/machine-id").read_text().strip()) == 32
    assert "OPENSSH PRIVATE KEY" in (tmp_path / "etc/ssh/ssh_host_ed25519_key").read_text()
    assert "PRIVATE KEY" in (tmp_path / "etc/ssh/ssh_host_rsa_key").read_text()
