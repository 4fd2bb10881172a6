"""What image/build and image/bundle pack for boards: the options that both have, and what each input must contain.

Whoever packs a wrong one hears of it here, with Python's standard library alone, and not from the board.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgellm.errors import ReleaseSourceError
from edgellm.host.option_types import named_path
from edgellm.host.source import is_wheel_for, wheel_platform

COLLECTION_NAME = ("edgellm", "appliance")
# What a model's weights are called, in the formats of every family.
WEIGHTS = ("*.gguf", "*.safetensors", "*.onnx", "model.bin")
# Where they lie in a folder: at its top or one below, and in a repository of a hub as it is fetched.
WEIGHTS_PLACES = ("", "*/", "snapshots/*/", "*/snapshots/*/")
GGUF_BEGINNING = b"GGUF"
POINTER_BEGINNING = b"version https://git-lfs"
JSON_BYTES_MAX = 16 << 20
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.*\.whl")
_GALAXY_LINE = re.compile(r"(?m)^(namespace|name):\s*['\"]?([a-z0-9_]+)['\"]?\s*(?:#.*)?$")


def add_input_options(parser: argparse.ArgumentParser, configuration_help: str) -> None:
    parser.add_argument("--wheels", metavar="FOLDER", type=named_path, help="wheels of edgellm and all that it needs")
    parser.add_argument(
        "--engine",
        metavar="FILE",
        type=named_path,
        action="append",
        default=[],
        help="an archive of edgellm engine export",
    )
    parser.add_argument(
        "--model",
        metavar="PATH",
        type=named_path,
        action="append",
        default=[],
        help="a model's folder or file, by the name it has",
    )
    parser.add_argument("--config", metavar="FILE", type=named_path, help=configuration_help)


def require_file(option: str, path: Path) -> Path:
    """One that can be read. Raises ReleaseSourceError."""
    try:
        if path.is_dir():
            raise ReleaseSourceError(f"{option} {path} is a folder — name the file itself")
        path.open("rb").close()
    except FileNotFoundError:
        raise ReleaseSourceError(f"{option} {path} is not there") from None
    except OSError as error:
        raise ReleaseSourceError(f"{option} {path}: {error.strerror}") from None
    return path


def require_folder(option: str, path: Path) -> Path:
    """One that can be read. Raises ReleaseSourceError."""
    try:
        os.scandir(path).close()
    except FileNotFoundError:
        raise ReleaseSourceError(f"{option} {path} is not there") from None
    except NotADirectoryError:
        raise ReleaseSourceError(f"{option} {path} is no folder — name the folder itself") from None
    except OSError as error:
        raise ReleaseSourceError(f"{option} {path}: {error.strerror}") from None
    return path


def wheels_in(folder: Path | None) -> Sequence[Path]:
    return [] if folder is None else sorted(folder.glob("*.whl"))


def require_wheels(folder: Path, architecture: str, what_for: str) -> Path:
    """Exactly one of edgellm among them, which is returned. ``what_for`` is for the message: "the bundle for any"."""
    require_folder("--wheels", folder)
    own = [wheel for wheel in wheels_in(folder) if wheel.name.startswith("edgellm-")]
    if len(own) != 1:
        raise ReleaseSourceError(f"--wheels {folder} needs one wheel of edgellm, and has {len(own)}")
    for wheel in wheels_in(folder):
        wheel_name(wheel.name)
        if not is_wheel_for(wheel, architecture):
            raise ReleaseSourceError(f"{wheel} is for {wheel_platform(wheel)}, and {what_for}")
        if not zipfile.is_zipfile(require_file("--wheels", wheel)):
            raise ReleaseSourceError(f"{wheel} is damaged — get it anew")
    return own[0]


def wheel_name(file_name: str) -> tuple[str, str]:
    """Name and version as a wheel's file name has them. Raises ReleaseSourceError."""
    found = _WHEEL.fullmatch(file_name)
    if found is None:
        raise ReleaseSourceError(
            f"{file_name} is not named as a wheel — get it anew, by the name that it was built with"
        )
    return found["name"].replace("_", "-"), found["version"]


def require_model(path: Path) -> Path:
    """A file of weights, or a folder that has one where models have them. Raises ReleaseSourceError."""
    if not name_of(path):
        raise ReleaseSourceError(f"--model {path} has no name of its own — name the model's folder or file")
    if not path.is_dir():
        require_file("--model", path)
        if not any(path.match(pattern) for pattern in WEIGHTS):
            raise ReleaseSourceError(f"--model {path} is no file of weights ({', '.join(WEIGHTS)})")
        _check_weights(path)
        return path
    require_folder("--model", path)
    weights = [file for place in WEIGHTS_PLACES for name in WEIGHTS for file in path.glob(place + name)]
    if not weights:
        raise ReleaseSourceError(
            f"--model {path} has no weights ({', '.join(WEIGHTS)}) — name the folder of one model, as it was fetched"
        )
    for file in weights:
        _check_weights(file)
    return path


def _check_weights(file: Path) -> None:
    with require_file("--model", file).open("rb") as stream:
        beginning = stream.read(len(POINTER_BEGINNING))
    if beginning == POINTER_BEGINNING:
        raise ReleaseSourceError(f"{file} is what Git LFS puts in the file's place — fetch the file: git lfs pull")
    if not beginning or (file.suffix == ".gguf" and not beginning.startswith(GGUF_BEGINNING)):
        raise ReleaseSourceError(f"{file} is damaged — fetch the model anew")


def require_collection(path: Path) -> Path:
    """The folder of this project's collection, or its archive. Raises ReleaseSourceError."""
    if path.is_dir():
        require_folder("--collection", path)
        found = _names_of_folder(path)
    else:
        found = _names_of_archive(require_file("--collection", path))
    if found != COLLECTION_NAME:
        said = "is none" if None in found else f"is the collection {found[0]}.{found[1]}"
        raise ReleaseSourceError(
            f"--collection {path} {said}, and {'.'.join(COLLECTION_NAME)} is needed — give the folder ansible of the "
            "checkout, or what ansible-galaxy collection build makes of it"
        )
    return path


def _names_of_folder(folder: Path) -> tuple[str | None, str | None]:
    """As its source has them, or as it was installed."""
    try:
        if (folder / "MANIFEST.json").is_file():
            return _names_of_manifest((folder / "MANIFEST.json").read_bytes())
        lines: dict[str, str] = dict(_GALAXY_LINE.findall((folder / "galaxy.yml").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None, None
    return lines.get("namespace"), lines.get("name")


def _names_of_archive(file: Path) -> tuple[str | None, str | None]:
    try:
        with tarfile.open(file) as archive:
            stream = archive.extractfile("MANIFEST.json")
            return (None, None) if stream is None else _names_of_manifest(stream.read(JSON_BYTES_MAX))
    except (OSError, tarfile.TarError, EOFError, KeyError):
        return None, None


def _names_of_manifest(content: bytes) -> tuple[str | None, str | None]:
    try:
        information = json.loads(content)["collection_info"]
        return str(information["namespace"]), str(information["name"])
    except (ValueError, KeyError, TypeError):
        return None, None


def require_bill_of_materials(path: Path) -> Path:
    """CycloneDX in JSON. Raises ReleaseSourceError."""
    content = require_file("--sbom", path).read_bytes()
    try:
        value: Any = json.loads(content)
        is_one = value["bomFormat"] == "CycloneDX" and isinstance(value["components"], list)
    except (ValueError, KeyError, TypeError):
        is_one = False
    if not is_one:
        raise ReleaseSourceError(f"--sbom {path} is no bill of materials — give one of CycloneDX, in JSON")
    return path


def name_of(path: Path) -> str:
    """Also of `.`, which names the folder that it is."""
    return os.path.basename(os.path.abspath(path))


def files_below(path: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Name and file of each, sorted; of a file that file alone."""
    if path.is_file():
        yield name, path
        return
    for file in sorted(path.rglob("*")):
        if file.is_file() and not any(map(_is_left_out, file.relative_to(path).parts)):
            yield f"{name}/{file.relative_to(path).as_posix()}", file


def _is_left_out(part: str) -> bool:
    """Settings and caches of tools, and locks: no part of what a board needs."""
    return part.startswith(".") or part == "__pycache__" or part.endswith(".lock")
