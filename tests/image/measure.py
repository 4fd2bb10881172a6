"""Measures what image/README.md says of images and bundles; tests on devices print what it says of boots."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from tests.image.bundles import Publisher, exported_engine
from tests.lab.wheels import build_wheel, release_folder
from tests.unit.host.conftest import make_key

import edgellm
from board_image.assembly import assemble
from board_image.board import read_board
from board_image.contents import Inputs
from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.source import resolve

MODEL = "smollm2-135m-instruct"
MIB = 1 << 20


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="edgellm-measure-") as name:
        folder = Path(name)
        model = resolve(MODEL, models_dir(default_cache_dir(os.environ))).path.parent
        wheels = folder / "wheels"
        wheels.mkdir()
        release_folder(build_wheel(folder / "wheel"), wheels, edgellm.__version__)
        inputs = folder / "inputs"
        (inputs / "cache/models").mkdir(parents=True)
        (inputs / "cache/models" / model.name).symlink_to(model)
        engine = exported_engine(MODEL, inputs)
        _image(folder / "image", Inputs(wheels=wheels, engines=[engine], models=[model]))
        _bundle(folder, wheels, engine, model)


def _image(folder: Path, inputs: Inputs) -> None:
    began = time.monotonic()
    manifest = assemble(read_board("generic-x86_64"), inputs, folder)
    seconds = time.monotonic() - began
    parts = ", ".join(f"{part} {size / MIB:.1f} MiB" for part, size in sorted(manifest["part_bytes"].items()))
    print(f"generic image: {parts}\nassembled in {seconds:.1f} s")


def _bundle(folder: Path, wheels: Path, engine: Path, model: Path) -> None:
    (folder / "publisher").mkdir()
    publisher = Publisher(folder / "stick", make_key(folder / "publisher/key"))
    began = time.monotonic()
    said = publisher.bundle("bundle", "--wheels", wheels, "--engine", engine, "--model", model)
    seconds = time.monotonic() - began
    size = re.search(r"in all +(\S+ MB, \d+ files)", said)
    by_python = re.search(r"verified in (.*)", said)
    verifying = ["sh", str(folder / "stick/bundle/install.sh"), "--verify-only"]
    shell = subprocess.run(
        [*verifying, "--key", str(folder / "stick/publisher.pub")], capture_output=True, text=True, check=True
    )
    assert size is not None
    assert by_python is not None
    print(f"bundle: {size[1]}, made in {seconds:.1f} s")
    print(f"verified by edgellm upgrade in {by_python[1]}, by install.sh: {shell.stdout.strip()}")
