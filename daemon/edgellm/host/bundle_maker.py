"""Makes the offline bundle: one folder for a USB stick that installs or upgrades a board without a network.

The same inputs give the same bytes: names are sorted, times and modes are fixed, ed25519 signs the same each time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, NoReturn

from edgellm.errors import EdgeLLMError, ReleaseSourceError, UsageError
from edgellm.host.archives import ImageArchive, require_engine_archive
from edgellm.host.bundle_manifest import (
    MANIFEST,
    MANIFEST_SIGNATURE,
    BundleFile,
    BundleManifest,
    read_manifest,
    sha256_of,
    verify_files,
)
from edgellm.host.configuration_check import check_configuration
from edgellm.host.disk_room import MEGABYTE_BYTES, require_room
from edgellm.host.option_types import named_path
from edgellm.host.packed_inputs import (
    add_input_options,
    files_below,
    name_of,
    require_bill_of_materials,
    require_collection,
    require_file,
    require_model,
    require_wheels,
    wheels_in,
)
from edgellm.host.signature import sign
from edgellm.host.source import ENGINES, IMAGE_ARCHIVE, MODELS, WHEELS, wheel_version
from edgellm.host.versions import Version

COLLECTION = "collection"
SBOM = "sbom.cdx.json"
INSTALL = "install.sh"
HOST_TOOL = "host.pyz"
CONFIGURATION = "edgellm.toml"
FIXED_TIME_SECONDS = 315532800  # 1980-01-01, the first that every archive format knows
ARCHITECTURES = ("x86_64", "aarch64", "any")
FILE_MODE, PROGRAM_MODE, FOLDER_MODE = 0o644, 0o755, 0o755
EXIT_INTERRUPTED = 130
FILE_ROOM_BYTES = 4_096  # what a file takes beside its content, at most, in the manifest too
# What install.sh reads from the manifest with sed.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@/-]*")


def main(arguments: Sequence[str] | None = None) -> int:
    """`image/bundle`. Errors are one line on standard error."""
    try:
        make_bundle(_parser().parse_args(arguments))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except EdgeLLMError as error:
        sys.stderr.write(f"image/bundle: {' '.join(str(error).split())}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"image/bundle: {error.filename or 'the bundle'}: {error.strerror}\n")
        return 73
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} — see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    what = "Makes an offline bundle: what a board needs to be installed or upgraded."
    parser = _Parser(prog="image/bundle", description=what, allow_abbrev=False)
    parser.add_argument("output", metavar="FOLDER", type=named_path, help="the bundle's folder, which must not exist")
    add_input_options(parser, "the configuration of boards that have none yet")
    parser.add_argument("--image-archive", metavar="FILE", type=named_path, help="a container image, of podman save")
    parser.add_argument(
        "--collection", metavar="PATH", type=named_path, help="the Ansible collection: its folder or archive"
    )
    parser.add_argument(
        "--sbom", metavar="FILE", type=named_path, help="a bill of materials in place of the wheels' own"
    )
    parser.add_argument("--floor", metavar="VERSION", help="the oldest version that may run on a board from then on")
    parser.add_argument(
        "--architecture",
        choices=ARCHITECTURES,
        default=platform.machine(),
        help="of the boards, as uname -m has it (default: this machine's)",
    )
    parser.add_argument("--sign", metavar="KEY", type=named_path, required=True, help="a private key of ssh-keygen")
    parser.add_argument(
        "--archive", metavar="FILE", type=named_path, help="the bundle as a tar file, too, which must not exist"
    )
    return parser


def make_bundle(chosen: argparse.Namespace) -> BundleManifest:
    """Raises EdgeLLMError that names the file, or OSError. What was made of the folder is gone then."""
    output: Path = chosen.output
    if output.exists():
        raise ReleaseSourceError(f"{output} is there already — choose another folder, or remove it")
    if chosen.wheels is None and chosen.image_archive is None:
        raise ReleaseSourceError("nothing would be installed — give --wheels, --image-archive or both")
    version = _version_of(chosen)
    _check(chosen, version)
    contents = list(_contents(chosen))
    _require_names(contents)
    made = {HOST_TOOL: _host_tool()}
    if chosen.sbom is None:
        made[SBOM] = _bill_of_materials(version, [path for name, path in contents if name.startswith(f"{WHEELS}/")])
    size_bytes = sum(path.stat().st_size for _, path in contents) + sum(map(len, made.values()))
    for place in (output, chosen.archive):
        if place is not None:
            require_room(place, size_bytes + (len(contents) + len(made)) * FILE_ROOM_BYTES, "the bundle")
    try:
        output.mkdir(parents=True)
    except OSError as error:
        raise ReleaseSourceError(f"{output}: {error.strerror} — name a folder that can be made") from None
    try:
        for name, source in contents:
            _put(source, output / name)
        for name, content in made.items():
            _write(output / name, content)
        files = {name: BundleFile((output / name).stat().st_size, sha256_of(output / name)) for name in _names(output)}
        manifest = BundleManifest(version, chosen.architecture, chosen.floor, files)
        _write(output / MANIFEST, manifest_text(manifest).encode())
        _fix_modes(output)
        sign(output / MANIFEST, chosen.sign)
        _fix_modes(output)
        began = time.monotonic()
        verify_files(output, read_manifest(output))
        seconds = time.monotonic() - began
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
    if chosen.archive is not None:
        write_archive(output, chosen.archive)
    _tell(output, manifest, seconds)
    return manifest


def manifest_text(manifest: BundleManifest) -> str:
    """A line for each file, so that a shell can read them."""
    value = manifest.as_json()
    files = value.pop("files")
    head = json.dumps(value, indent=1)[:-2]
    lines = [f"  {json.dumps(name)}: {json.dumps(files[name], sort_keys=True)}" for name in sorted(files)]
    return head + ',\n "files": {\n' + ",\n".join(lines) + "\n }\n}\n"


def write_archive(folder: Path, target: Path) -> None:
    """A tar of the folder under its name."""
    unfinished = target.with_name(f".{target.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        with tarfile.open(unfinished, "x", format=tarfile.PAX_FORMAT) as archive:
            for name in [*_names(folder), MANIFEST, MANIFEST_SIGNATURE]:
                path = folder / name
                entry = tarfile.TarInfo(f"{folder.name}/{name}")
                entry.size, entry.mtime = path.stat().st_size, FIXED_TIME_SECONDS
                entry.mode = PROGRAM_MODE if name == INSTALL else FILE_MODE
                with path.open("rb") as stream:
                    archive.addfile(entry, stream)
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _contents(chosen: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Name in the bundle and the file that it is made of."""
    yield INSTALL, _beside_the_image_folder("install.sh")
    for wheel in wheels_in(chosen.wheels):
        yield f"{WHEELS}/{wheel.name}", wheel
    if chosen.image_archive is not None:
        yield IMAGE_ARCHIVE, chosen.image_archive
    for engine in chosen.engine:
        yield f"{ENGINES}/{engine.name}", engine
    for model in chosen.model:
        yield from files_below(model, f"{MODELS}/{name_of(model)}")
    if chosen.collection is not None:
        yield from files_below(chosen.collection, f"{COLLECTION}/{name_of(chosen.collection)}")
    if chosen.config is not None:
        yield CONFIGURATION, chosen.config
    if chosen.sbom is not None:
        yield SBOM, chosen.sbom


def _beside_the_image_folder(name: str) -> Path:
    path = Path(__file__).resolve().parents[3] / "image" / name
    if not path.is_file():
        raise ReleaseSourceError(f"{path} is not there — make bundles from a checkout of edgellm")
    return path


def _require_names(contents: Sequence[tuple[str, Path]]) -> None:
    """A shell reads them, and each stands for one file."""
    taken: dict[str, Path] = {}
    for name, source in contents:
        if not _NAME.fullmatch(name):
            raise ReleaseSourceError(f"{source}: a bundle's names have letters, digits and . _ + @ - alone — rename it")
        if name in taken:
            raise ReleaseSourceError(
                f"{source}: {name} would be there twice, as {taken[name]} too — rename one of them"
            )
        taken[name] = source


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _host_tool() -> bytes:
    # Imported here: the service's code, which the host tool itself does without.
    import importlib

    made = importlib.import_module("edgellm.service.install.host_tool").host_tool()
    assert isinstance(made, bytes)  # noqa: S101  # the module is found by name
    return made


def _names(folder: Path) -> list[str]:
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return sorted(name for name in names if name not in (MANIFEST, MANIFEST_SIGNATURE))


def _fix_modes(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(FOLDER_MODE if path.is_dir() else PROGRAM_MODE if path.name == INSTALL else FILE_MODE)
        os.utime(path, (FIXED_TIME_SECONDS, FIXED_TIME_SECONDS))


def _version_of(chosen: argparse.Namespace) -> str:
    """Wheels and image must be of the same."""
    by_wheel = by_image = None
    if chosen.wheels is not None:
        what_for = f"the bundle for {chosen.architecture} — see --architecture"
        by_wheel = wheel_version(require_wheels(chosen.wheels, chosen.architecture, what_for))
    if chosen.image_archive is not None:
        image = ImageArchive.read(require_file("--image-archive", chosen.image_archive))
        if image.architecture != chosen.architecture:
            raise ReleaseSourceError(
                f"{chosen.image_archive} is for {image.architecture}, and the bundle for {chosen.architecture} — see "
                "--architecture"
            )
        by_image = image.version
    if by_wheel and by_image and by_wheel != by_image:
        raise ReleaseSourceError(f"the wheel is edgellm {by_wheel}, and {chosen.image_archive} holds {by_image}")
    version = by_wheel or by_image or ""
    _require_version("the release", version)
    return version


def _check(chosen: argparse.Namespace, version: str) -> None:
    """Nothing is written before all of it is there and fits together."""
    for engine in chosen.engine:
        require_engine_archive(require_file("--engine", engine))
    for model in chosen.model:
        require_model(model)
    if chosen.collection is not None:
        require_collection(chosen.collection)
    if chosen.sbom is not None:
        require_bill_of_materials(chosen.sbom)
    if chosen.config is not None:
        check_configuration(chosen.config)
    if chosen.floor is not None:
        _require_version("--floor", chosen.floor)
        if Version(chosen.floor) > Version(version):
            raise ReleaseSourceError(f"--floor {chosen.floor} would refuse this very release, which is {version}")
    require_file("--sign", chosen.sign)
    if chosen.archive is not None and not chosen.archive.absolute().parent.is_dir():
        raise ReleaseSourceError(f"--archive {chosen.archive}: its folder is not there — name one outside the bundle")
    if chosen.archive is not None and chosen.archive.is_dir():
        raise ReleaseSourceError(f"--archive {chosen.archive} is a folder — name the file that is to be made")
    if chosen.archive is not None and os.path.lexists(chosen.archive):
        raise ReleaseSourceError(
            f"--archive {chosen.archive} is there already — choose another name, or remove it first"
        )


def _require_version(option: str, text: str) -> None:
    try:
        Version(text)
    except ValueError as error:
        raise ReleaseSourceError(f"{option}: {error}") from None


def _bill_of_materials(version: str, wheels: Sequence[Path]) -> bytes:
    """CycloneDX 1.5, from what the wheels say of themselves."""
    components = [_component(wheel) for wheel in wheels]
    value = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "edgellm", "version": version}},
        "components": components,
    }
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _component(wheel: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one)]
            headers = HeaderParser().parsestr(archive.read(name).decode("utf-8", "replace"))
    except (OSError, zipfile.BadZipFile, ValueError):
        raise ReleaseSourceError(f"{wheel} is damaged — get it anew") from None
    project = re.sub(r"[-_.]+", "-", headers["Name"]).lower()
    found: dict[str, Any] = {
        "type": "library",
        "name": project,
        "version": headers["Version"],
        "purl": f"pkg:pypi/{project}@{headers['Version']}",
        "hashes": [{"alg": "SHA-256", "content": sha256_of(wheel)}],
    }
    licence = headers.get("License-Expression") or headers.get("License")
    if licence and "\n" not in licence:
        found["licenses"] = [{"license": {"name": licence}}]
    return found


def _tell(output: Path, manifest: BundleManifest, verify_seconds: float) -> None:
    total_bytes = sum(file.size_bytes for file in manifest.files.values())
    parts: dict[str, int] = {}
    for name, file in manifest.files.items():
        part = name.partition("/")[0]
        parts[part] = parts.get(part, 0) + file.size_bytes
    for part, size_bytes in sorted(parts.items()):
        print(f"{part:<16} {size_bytes / MEGABYTE_BYTES:>9.1f} MB")
    print(f"{'in all':<16} {total_bytes / MEGABYTE_BYTES:>9.1f} MB, {len(manifest.files)} files")
    rate = total_bytes / MEGABYTE_BYTES / verify_seconds if verify_seconds else 0.0
    print(f"{output}: edgellm {manifest.version}, signed; verified in {verify_seconds:.1f} s ({rate:.0f} MB/s)")


if __name__ == "__main__":
    sys.exit(main())
