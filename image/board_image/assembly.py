"""Assembles an image: overlay.tar, for over a root file system, and what is in it. Same inputs, same bytes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Container, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from board_image.board import Board
from board_image.contents import IMAGE_FOLDER, Entry, Inputs, contents_of, sizes_by_part
from edgellm import __version__
from edgellm.errors import ConfigError
from edgellm.host.disk_room import require_room
from edgellm.host.packed_inputs import wheel_name

FORMAT = 1
ARCHIVE, MANIFEST, SBOM, SUMS = "overlay.tar", "manifest.json", "sbom.cdx.json", "SHA256SUMS"
ENTRY_UNIX_SECONDS = 315_532_800  # 1980-01-01: of every file, whenever it is assembled
FOLDER_MODE = 0o755
SBOM_VERSION = "1.6"
ENTRY_ROOM_BYTES = 4_096  # of a file in the archive, manifest and SBOM, at most


def assemble(board: Board, inputs: Inputs, output: Path) -> dict[str, Any]:
    """Fill the new folder ``output``; its manifest. Raises ConfigError."""
    entries = contents_of(board, inputs)
    if output.exists():
        raise ConfigError(f"{output} is there already — name a new folder")
    require_room(output, sum(entry.size_bytes + ENTRY_ROOM_BYTES for entry in entries), "the image")
    manifest = _manifest(board, inputs, entries)
    manifest_bytes = _json(manifest)
    inside = [*entries, Entry(f"{IMAGE_FOLDER}/{MANIFEST}", "system", manifest_bytes)]
    unfinished = output.with_name(f".{output.name}.unfinished")
    try:
        unfinished.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"{output}: {error.strerror} — name a new folder where one can be made") from None
    try:
        try:
            files = {MANIFEST: manifest_bytes, SBOM: _json(_sbom(board, manifest))}
            for name, content in files.items():
                (unfinished / name).write_bytes(content)
            _write_archive(unfinished / ARCHIVE, sorted(inside, key=lambda entry: entry.name))
            sums = [f"{_sha256(unfinished / name)}  {name}" for name in sorted((ARCHIVE, *files))]
            (unfinished / SUMS).write_text("\n".join(sums) + "\n")
            unfinished.rename(output)
        except BaseException:
            _remove(unfinished)
            raise
    except OSError as error:
        raise ConfigError(f"{error.filename or output}: {error.strerror}") from None
    return manifest


def _manifest(board: Board, inputs: Inputs, entries: Sequence[Entry]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "board": board.name,
        "architecture": board.architecture,
        "edgellm": __version__,
        "mode": inputs.mode.value,
        "bsp": None if board.bsp is None else {"release": board.bsp.release, "config": board.bsp.config},
        "part_bytes": dict(sorted(sizes_by_part(entries).items())),
        "files": {
            entry.name: (
                {"link": entry.link}
                if entry.link is not None
                else {"sha256": entry.sha256(), "bytes": entry.size_bytes, "part": entry.part}
            )
            for entry in entries
        },
    }


def _sbom(board: Board, manifest: dict[str, Any]) -> dict[str, Any]:
    """CycloneDX: edgellm itself, each wheel, the container's archive, engines and models by their digests."""
    components = []
    for name, file in manifest["files"].items():
        if file.get("part") in (None, "system"):
            continue
        base = PurePosixPath(name).name
        component = {"type": "file", "name": base, "hashes": [{"alg": "SHA-256", "content": file["sha256"]}]}
        if file["part"] == "wheels":
            package, version = wheel_name(base)
            purl = f"pkg:pypi/{package.lower()}@{version}"
            component |= {"type": "library", "name": package, "version": version, "purl": purl, "bom-ref": purl}
        elif file["part"] in ("models", "engines"):
            component |= {"type": "machine-learning-model", "name": name.removeprefix(f"{IMAGE_FOLDER}/")}
        elif file["part"] == "container":
            component |= {"type": "container"}
        components.append(component)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SBOM_VERSION,
        "version": 1,
        "metadata": {
            "component": {"type": "firmware", "name": f"edgellm image for {board.name}", "version": __version__}
        },
        "components": components,
    }


def _write_archive(path: Path, entries: Sequence[Entry]) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for folder in _folders(entries):
            archive.addfile(_header(folder, tarfile.DIRTYPE, FOLDER_MODE))
        for entry in entries:
            if entry.link is not None:
                header = _header(entry.name, tarfile.SYMTYPE, entry.mode)
                header.linkname = entry.link
                archive.addfile(header)
                continue
            header = _header(entry.name, tarfile.REGTYPE, entry.mode)
            header.size = entry.size_bytes
            if entry.file is None:
                archive.addfile(header, io.BytesIO(entry.content or b""))
            else:
                with entry.file.open("rb") as stream:
                    archive.addfile(header, stream)


def _folders(entries: Sequence[Entry]) -> Iterator[str]:
    folders = {str(parent) for entry in entries for parent in PurePosixPath(entry.name).parents}
    yield from sorted(folders - {"."})


def _header(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.mode, header.mtime = kind, mode, ENTRY_UNIX_SECONDS
    header.uid = header.gid = 0
    header.uname = header.gname = "root"
    return header


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of an assembled image whose sums hold. Raises ConfigError that names the file which is not whole."""
    try:
        lines = (folder / SUMS).read_text().splitlines()
        sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
        for name in (ARCHIVE, MANIFEST, SBOM):
            if _sha256(folder / name) != sums.get(name):
                raise ConfigError(f"{folder / name} is not what {SUMS} says — assemble the image anew")
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror} — give a folder of image/build") from None
    except ValueError:
        raise ConfigError(f"{folder} is no assembled image — give a folder of image/build") from None
    if manifest.get("format") != FORMAT:
        raise ConfigError(f"{folder / MANIFEST} has the format {manifest.get('format')}, and this tool knows {FORMAT}")
    return manifest


def apply(folder: Path, root: Path) -> None:
    """Unpack the image over the root file system in ``root``: links in it are never followed out of it. What an earlier
    image left there and this one has not goes: a board takes whatever it finds."""
    try:
        with tarfile.open(folder / ARCHIVE) as archive:
            archive.extraction_filter = _as_packed
            _remove_earlier(root, set(archive.getnames()))
            for member in archive:
                target = root / member.name
                _refuse_way_out(root, target)
                if not member.isdir() and (target.is_symlink() or target.exists()):
                    target.unlink()
                if member.isdir() and target.is_dir():
                    continue  # the folder is the system's, with the rights that it has there
                archive.extract(member, root, numeric_owner=True)
    except OSError as error:
        raise ConfigError(f"{error.filename or root}: {error.strerror}") from None
    os.sync()


def _remove_earlier(root: Path, names: Container[str]) -> None:
    path = root / IMAGE_FOLDER / MANIFEST
    try:
        earlier = [str(name) for name in json.loads(path.read_bytes())["files"]]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} cannot be read — extract the root file system anew") from None
    for name in earlier:
        if name in names or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            continue
        target = root / name
        _refuse_way_out(root, target)
        target.unlink(missing_ok=True)
        # An empty folder of a model would be taken for one; those of the system stay.
        own, folder = root / IMAGE_FOLDER, target.parent
        while own in folder.parents and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def _as_packed(member: tarfile.TarInfo, _folder: str) -> tarfile.TarInfo:
    """What an image holds is all meant; Python before 3.11.4, as of Debian 12, passes over this and does so too."""
    return member


def _refuse_way_out(root: Path, target: Path) -> None:
    resolved = target.parent.resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise ConfigError(f"{target.parent} leads out of {root} — is it a root file system?")
