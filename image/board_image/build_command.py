"""The command image/build."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from board_image.assembly import assemble
from board_image.board import board_names, read_board
from board_image.command import Parser, run_command
from board_image.contents import Inputs
from edgellm.host.option_types import named_path
from edgellm.host.packed_inputs import add_input_options

MIB = 2**20


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="image/build", description="Assembles what goes onto a board.", allow_abbrev=False)
    parser.add_argument("board", metavar="BOARD", help=f"one of {', '.join(board_names())}")
    parser.add_argument("--output", metavar="FOLDER", type=named_path, required=True, help="a new folder for the image")
    parser.add_argument(
        "--container", metavar="FILE", type=named_path, help="archive of the container image (podman save)"
    )
    add_input_options(parser, "the board's edgellm.toml (default: HTTPS and keys)")
    parser.add_argument(
        "--without-pairing",
        action="store_true",
        help="take a --config with which no client can pair with the board, and whose console shows no code",
    )
    return run_command(parser, _run, arguments)


def _run(chosen: argparse.Namespace) -> int:
    began = time.monotonic()
    board = read_board(chosen.board)
    inputs = Inputs(chosen.container, chosen.wheels, chosen.engine, chosen.model, chosen.config, chosen.without_pairing)
    manifest = assemble(board, inputs, chosen.output)
    for part, size_bytes in manifest["part_bytes"].items():
        print(f"{part:<10} {size_bytes / MIB:9.1f} MiB")
    print(f"{chosen.output} for {board.name}: {len(manifest['files'])} files, in {time.monotonic() - began:.1f} s")
    return 0
