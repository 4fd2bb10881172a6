"""``edgellm version``: the versions that matter in a bug report."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata

from edgellm import __version__

_LIBRARIES = ("libggml-python", "llguidance", "tokenizers", "fastapi", "uvicorn", "tensorrt-edgellm")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also the libraries it stands on")


def run(namespace: argparse.Namespace) -> int:
    print(f"edgellm {__version__}")
    if namespace.all:
        print(f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}")
        for library in _LIBRARIES:
            try:
                print(f"{library} {metadata.version(library)}")
            except metadata.PackageNotFoundError:
                print(f"{library} is not installed")
    return 0
