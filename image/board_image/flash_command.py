"""The command image/flash: checks everything first, then puts the image over the root file system and flashes."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from board_image.assembly import ARCHIVE, apply, verify
from board_image.board import Board, Bsp, read_board
from board_image.bsp import BspFolder, Finding, check_recovery_device, check_space, flash_command, free_bytes, list_usb
from board_image.command import Parser, run_command
from edgellm.errors import ConfigError, FlashError
from edgellm.host.option_types import named_path


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="image/flash", description="Puts an assembled image onto a board.", allow_abbrev=False)
    parser.add_argument("image", metavar="IMAGE", type=named_path, help="a folder of image/build")
    parser.add_argument(
        "--bsp",
        metavar="FOLDER",
        type=named_path,
        required=True,
        help="NVIDIA's Linux_for_Tegra, with its root file system",
    )
    parser.add_argument("--board", metavar="BOARD", help="the board that is connected (default: that of the image)")
    parser.add_argument("--dry-run", action="store_true", help="check everything, print every step, change nothing")
    return run_command(parser, _run, arguments)


def _run(chosen: argparse.Namespace) -> int:
    manifest = verify(chosen.image)
    if chosen.board is not None and chosen.board != manifest["board"]:
        raise ConfigError(f"{chosen.image} is for {manifest['board']}, and the board is {chosen.board}")
    board = read_board(manifest["board"])
    bsp = _bsp_of(board, manifest["bsp"], chosen.image)
    folder = BspFolder(chosen.bsp.absolute())
    _check_host(dry_run=chosen.dry_run)
    _say(Finding("image", f"{manifest['board']}, edgellm {manifest['edgellm']}, {manifest['mode']}; whole"))
    for finding in folder.check(bsp):
        _say(finding)
    image_bytes = (chosen.image / ARCHIVE).stat().st_size
    _say(check_space(folder.path, bsp, image_bytes, free_bytes(folder.path)))
    _say(check_recovery_device(bsp, list_usb()))
    command = flash_command(bsp)
    steps = [f"unpack {chosen.image / ARCHIVE} over {folder.rootfs}", f"cd {folder.path}; {shlex.join(command)}"]
    if chosen.dry_run:
        for number, step in enumerate(steps, start=1):
            print(f"would, {number}.: {step}")
        return 0
    print(f"step 1: {steps[0]}", flush=True)
    apply(chosen.image, folder.rootfs)
    print(f"step 2: {steps[1]}", flush=True)
    began = time.monotonic()
    completed = subprocess.run(command, cwd=folder.path, check=False)  # noqa: S603  # of the board's file
    if completed.returncode != 0:
        raise FlashError(
            f"{command[0]} ended with {completed.returncode} — its last lines say why; the board is still in recovery "
            "mode, or needs to be put there again"
        )
    print(f"flashed in {time.monotonic() - began:.0f} s; the board starts, and shows a pairing code on its console")
    return 0


def _bsp_of(board: Board, recorded: object, image: Path) -> Bsp:
    if board.bsp is None:
        raise ConfigError(f"{board.name} is not flashed by NVIDIA's tool — unpack {image / ARCHIVE} over its root")
    expected = {"release": board.bsp.release, "config": board.bsp.config}
    if recorded != expected:
        raise ConfigError(
            f"{image} was assembled for {recorded}, and this checkout flashes {expected}: assemble it anew"
        )
    return board.bsp


def _check_host(*, dry_run: bool) -> None:
    if platform.machine() != "x86_64":
        raise ConfigError(f"NVIDIA's flashing tools run on x86_64, and this machine is {platform.machine()}")
    if os.geteuid() != 0 and not dry_run:
        raise ConfigError("flashing needs root — run it with sudo")


def _say(finding: Finding) -> None:
    print(f"ok  {finding.what}: {finding.found}", flush=True)
