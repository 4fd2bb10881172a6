"""Flashing, against a folder of the shape that NVIDIA documents and a tool that writes down how it was called."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.image.container_archives import container_archive

from board_image.assembly import apply, assemble
from board_image.board import board_names, read_board
from board_image.bsp import BspFolder, check_recovery_device, check_space
from board_image.contents import Inputs
from edgellm.errors import ConfigError, HostSpaceError

FLASH = Path(__file__).resolve().parents[2] / "image/flash"
JETSONS = [name for name in board_names() if name.startswith("jetson")]
TOOL = """#!/bin/sh
{ echo "$PWD"; for word in "$0" "$@"; do echo "$word"; done; } >called
exit "${FLASH_EXIT-0}"
"""
RELEASE = "# R{major} (release), REVISION: {minor}, GCID: 1, BOARD: generic, EABI: aarch64, DATE: Mon Jan 1 2026\n"
# The command as it is, on a machine with a large disk, or as the test has it.
COMMAND = """
import os, platform, sys
from board_image import flash_command
flash_command.free_bytes = lambda folder: int(os.environ.get("FREE_BYTES", 10**12))
if "HOST_MACHINE" in os.environ:
    platform.machine = lambda: os.environ["HOST_MACHINE"]
if "HOST_USER" in os.environ:
    os.geteuid = lambda: int(os.environ["HOST_USER"])
sys.exit(flash_command.main(sys.argv[1:]))
"""
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="flashing hosts are x86_64")


class FlashingHost:
    """A folder Linux_for_Tegra, an image, and what lsusb says."""

    def __init__(self, folder: Path, board: str) -> None:
        self.folder = folder
        self.board = read_board(board)
        assert self.board.bsp is not None
        self.bsp = self.board.bsp
        self.image = folder / "image"
        archive = container_archive(folder / "edgellm.tar", architecture="arm64")
        assemble(self.board, Inputs(container=archive), self.image)
        self.tegra = folder / "Linux_for_Tegra"
        for name in ("bootloader", "kernel", "nv_tegra", "tools", "rootfs/etc"):
            (self.tegra / name).mkdir(parents=True)
        for tool in {"flash.sh", self.bsp.flash[0], "apply_binaries.sh"}:
            (self.tegra / tool).write_text(TOOL)
            (self.tegra / tool).chmod(0o755)
        for one in ("jetson-agx-orin-devkit", "jetson-orin-nano-devkit-super", "jetson-agx-thor-devkit"):
            (self.tegra / f"{one}.conf").write_text("")
        self.set_release("39", "2.1")
        (self.tegra / "rootfs/etc/os-release").write_text('NAME="Ubuntu"\nVERSION_ID="24.04"\n')
        (self.tegra / "rootfs/etc/passwd").write_text(
            "root:x:0:0::/root:/bin/bash\noperator:x:1000:1000::/:/bin/bash\n"
        )
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.connect(self.bsp.usb_ids[0])

    def set_release(self, major: str, minor: str) -> None:
        (self.tegra / "rootfs/etc/nv_tegra_release").write_text(RELEASE.format(major=major, minor=minor))

    def connect(self, *ids: str) -> None:
        lines = ["Bus 001 Device 001: ID 1d6b:0002 Linux Foundation 2.0 root hub"]
        lines += [f"Bus 003 Device 00{number}: ID {one} NVIDIA Corp. APX" for number, one in enumerate(ids, start=5)]
        lsusb = self.programs / "lsusb"
        lsusb.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
        lsusb.chmod(0o755)

    def flash(self, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", COMMAND, str(self.image), "--bsp", str(self.tegra), *options]
        places = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{FLASH.parent}:{FLASH.parents[1] / 'daemon'}",
        }
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **places, **environ}
        )

    def refused(self, *options: str, dry_run: bool = True, code: int = 78, **environ: str) -> str:
        """What is said; nothing was touched."""
        done = self.flash(*(["--dry-run"] if dry_run else []), *options, **environ)
        assert done.returncode == code, done.stdout + done.stderr
        assert done.stderr.count("\n") == 1
        assert not self.was_called
        assert not (self.tegra / "rootfs/usr").exists()
        return done.stderr

    @property
    def was_called(self) -> bool:
        return (self.tegra / "called").exists()


@pytest.fixture
def host(tmp_path: Path) -> FlashingHost:
    return FlashingHost(tmp_path, "jetson-orin-nano")


@pytest.mark.parametrize("name", JETSONS)
def test_every_board_is_checked_and_flashed_as_nvidia_documents(tmp_path: Path, name: str) -> None:
    host = FlashingHost(tmp_path, name)
    dry = host.flash("--dry-run")
    assert dry.returncode == 0, dry.stderr
    for what in ("BSP release: R39.2", f"{host.bsp.config}.conf", "ubuntu-24.04", "first user: operator", "free space"):
        assert what in dry.stdout
    assert f"board in recovery mode: {host.bsp.usb_ids[0]}" in dry.stdout
    assert "would, 2.: cd " in dry.stdout
    assert not host.was_called
    assert not (host.tegra / "rootfs/usr").exists()
    if os.geteuid() != 0:
        assert host.flash().returncode == 78
        return
    done = host.flash()
    assert done.returncode == 0, done.stderr
    called = (host.tegra / "called").read_text().splitlines()
    assert called == [str(host.tegra), *(word.format(config=host.bsp.config) for word in host.bsp.flash)]
    manifest = json.loads((host.tegra / "rootfs/usr/share/edgellm/image/manifest.json").read_text())
    assert manifest["board"] == name
    assert (host.tegra / "rootfs/usr/local/lib/systemd/system/edgellm-first-boot.service").is_file()


@pytest.mark.parametrize(
    ("major", "minor", "found"), [("36", "4.3", "R36.4"), ("39", "1.0", "R39.1"), ("38", "2", "R38.2")]
)
def test_another_release_is_refused_with_both_values(host: FlashingHost, major: str, minor: str, found: str) -> None:
    host.set_release(major, minor)
    assert f"is of release {found}, and this board needs R39.2" in host.refused()


def test_what_is_missing_in_the_folder_is_named(host: FlashingHost) -> None:
    (host.tegra / "jetson-orin-nano-devkit-super.conf").unlink()
    said = host.refused()
    assert "has no jetson-orin-nano-devkit-super.conf" in said
    assert "it has jetson-agx-orin-devkit, jetson-agx-thor-devkit" in said
    (host.tegra / "jetson-orin-nano-devkit-super.conf").write_text("")
    (host.tegra / "l4t_initrd_flash.sh").chmod(0o644)
    assert "l4t_initrd_flash.sh is not there, or may not be run" in host.refused()
    (host.tegra / "l4t_initrd_flash.sh").chmod(0o755)
    (host.tegra / "rootfs/etc/os-release").write_text('VERSION_ID="22.04"\n')
    assert "is ubuntu-22.04, and this board needs ubuntu-24.04" in host.refused()
    (host.tegra / "rootfs/etc/os-release").write_text('VERSION_ID="24.04"\n')
    (host.tegra / "rootfs/etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n")
    assert "l4t_create_default_user.sh" in host.refused()


def test_a_root_file_system_without_nvidias_files_is_refused(host: FlashingHost) -> None:
    (host.tegra / "rootfs/etc/nv_tegra_release").unlink()
    assert "NVIDIA's files are not applied" in host.refused()
    shutil.rmtree(host.tegra)
    host.tegra.mkdir()
    assert "is no Linux_for_Tegra folder: it has no flash.sh" in host.refused()


def test_another_board_is_refused_with_both_values(host: FlashingHost) -> None:
    host.connect("0955:7023")
    said = host.refused()
    assert "0955:7523 or 0955:7623 is needed, and NVIDIA's devices here are 0955:7023" in said
    assert "is for jetson-orin-nano, and the board is jetson-agx-thor" in host.refused("--board", "jetson-agx-thor")
    host.connect()
    assert "no device of NVIDIA's is seen" in host.refused()
    host.connect("0955:7523", "0955:7523")
    assert "2 boards are in recovery mode" in host.refused()
    host.connect("0955:7623")
    assert host.flash("--dry-run").returncode == 0


def test_a_damaged_image_is_refused_by_name(host: FlashingHost) -> None:
    with (host.image / "overlay.tar").open("r+b") as stream:
        stream.seek(1000)
        stream.write(b"x")
    assert "overlay.tar is not what SHA256SUMS says" in host.refused()


def test_a_host_that_cannot_flash_is_told_why(host: FlashingHost) -> None:
    """Without --dry-run too: all is checked before anything is unpacked."""
    for dry_run in (True, False):
        said = host.refused(dry_run=dry_run, code=73, FREE_BYTES=str(39 * 10**9), HOST_USER="0")
        assert f"{host.tegra} has 39.0 GB free, and flashing needs 40.0 GB — make room there" in said
        said = host.refused(dry_run=dry_run, HOST_MACHINE="aarch64", HOST_USER="0")
        assert "NVIDIA's flashing tools run on x86_64, and this machine is aarch64" in said
        (host.programs / "lsusb").rename(host.programs / "away")
        said = host.refused(dry_run=dry_run, PATH=str(host.programs), HOST_USER="0")
        assert "lsusb is not on this machine — apt install usbutils" in said
        (host.programs / "away").rename(host.programs / "lsusb")
    assert "flashing needs root — run it with sudo" in host.refused(dry_run=False, HOST_USER="1000")
    assert host.flash("--dry-run", HOST_USER="1000").returncode == 0


OPTION_MISTAKES = [
    ([], 64, "the following arguments are required: IMAGE, --bsp — see image/flash --help"),
    (["image"], 64, "the following arguments are required: --bsp — see "),
    (["", "--bsp", "empty"], 64, "argument IMAGE: an empty text names no file or folder"),
    (["image", "--bsp", ""], 64, "argument --bsp: an empty text names no file or folder"),
    (
        ["image", "--bsp", "nowhere"],
        78,
        "nowhere is no Linux_for_Tegra folder: it has no flash.sh — unpack Jetson_Linux_",
    ),
    (["image", "--bsp", "edgellm.tar"], 78, "edgellm.tar is no Linux_for_Tegra folder: it has no flash.sh"),
    (["image", "--bsp", "empty"], 78, "empty is no Linux_for_Tegra folder: it has no flash.sh"),
    (["nowhere", "--bsp", "empty"], 78, "nowhere/SHA256SUMS: No such file or directory — give a folder of image/build"),
    (["edgellm.tar", "--bsp", "empty"], 78, "edgellm.tar/SHA256SUMS: Not a directory — give a folder of image/build"),
    (["empty", "--bsp", "empty"], 78, "empty/SHA256SUMS: No such file or directory — give a folder of image/build"),
    (
        ["image", "--bsp", "empty", "--board", "jetson-nano"],
        78,
        "image is for jetson-orin-nano, and the board is jetson-",
    ),
    (["image", "--bs", "empty"], 64, "required: --bsp"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), OPTION_MISTAKES)
def test_options_that_say_nothing_are_named(host: FlashingHost, arguments: list[str], code: int, said: str) -> None:
    (host.folder / "empty").mkdir()
    command = [sys.executable, str(FLASH), "--dry-run", *arguments]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, cwd=host.folder)
    assert refused.returncode == code
    assert refused.stderr.startswith("image/flash: ")
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_folders_may_be_relative_and_have_spaces(host: FlashingHost) -> None:
    host.image = host.image.rename(host.folder / "the image")
    host.tegra = host.tegra.rename(host.folder / "Linux for Tegra")
    host.image, host.tegra = (Path(os.path.relpath(path)) for path in (host.image, host.tegra))
    done = host.flash(*(["--dry-run"] if os.geteuid() != 0 else []))
    assert done.returncode == 0, done.stderr
    assert os.geteuid() != 0 or (host.tegra / "rootfs/usr/share/edgellm/image/manifest.json").is_file()


def test_a_tool_that_fails_is_said_with_its_code(host: FlashingHost) -> None:
    if os.geteuid() != 0:
        pytest.skip("flashing needs root")
    failed = host.flash(FLASH_EXIT="3")
    assert failed.returncode == 70
    assert "l4t_initrd_flash.sh ended with 3" in failed.stderr


def test_too_little_space_and_several_devices_are_told_apart() -> None:
    bsp = read_board("jetson-agx-orin").bsp
    assert bsp is not None
    with pytest.raises(HostSpaceError, match=r"has 39\.9 GB free, and flashing needs 41\.0 GB"):
        check_space(Path("/"), bsp, 10**9, int(39.9 * 10**9))
    assert "41.0 GB needed" in check_space(Path("/"), bsp, 10**9, 50 * 10**9).found
    assert check_recovery_device(bsp, "Bus 1 Device 2: ID 0955:7223 NVIDIA Corp.").found == "0955:7223"


def test_a_second_image_leaves_nothing_of_the_first(host: FlashingHost, tmp_path: Path, wheels: Path) -> None:
    """A board takes whatever it finds: two releases, or units of both modes, would be one too many."""
    root, model = tmp_path / "root", tmp_path / "model"
    root.mkdir()
    model.mkdir()
    (model / "model.gguf").write_bytes(b"GGUF of the first")
    assemble(read_board("generic-x86_64"), Inputs(wheels=wheels, models=[model]), tmp_path / "first")
    apply(tmp_path / "first", root)
    (root / "etc/edgellm/mine.txt").write_text("of the operator")
    other = container_archive(tmp_path / "edgellm-newer.tar", architecture="arm64")
    assemble(host.board, Inputs(container=other), tmp_path / "second")
    apply(tmp_path / "second", root)
    once = tmp_path / "once"
    once.mkdir()
    apply(tmp_path / "second", once)

    def files(folder: Path) -> set[str]:
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}

    assert files(root) == files(once) | {"etc/edgellm/mine.txt"}
    assert [path.name for path in (root / "usr/share/edgellm/image").glob("*/*")] == ["edgellm.tar"]
    (root / "usr/share/edgellm/image/manifest.json").write_text("{")
    with pytest.raises(ConfigError, match=r"manifest\.json cannot be read — extract the root file system anew"):
        apply(host.image, root)


def test_the_generic_image_is_not_flashed(tmp_path: Path, wheels: Path) -> None:
    assemble(read_board("generic-x86_64"), Inputs(wheels=wheels), tmp_path / "image")
    command = [sys.executable, str(FLASH), str(tmp_path / "image"), "--bsp", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "generic-x86_64 is not flashed by NVIDIA's tool — unpack" in done.stderr
    with pytest.raises(ConfigError, match="does not name a release"):
        BspFolder(tmp_path).release()
