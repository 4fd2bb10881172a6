"""Engine archives taken apart and put together again, right and wrong."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import zstandard

Members = list[tuple[tarfile.TarInfo, bytes]]


def members_of(archive: Path) -> Members:
    """Every member with its content, as any tar program reads it."""
    with archive.open("rb") as stream:
        plain = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True).read()
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        return [(info, (tar.extractfile(info) or io.BytesIO()).read()) for info in tar.getmembers()]


def write_archive(path: Path, members: Sequence[tuple[tarfile.TarInfo, bytes]], end: bytes = bytes(1024)) -> Path:
    plain = bytearray()
    for info, content in members:
        plain += info.tobuf(tarfile.GNU_FORMAT)
        plain += content + bytes(-len(content) % 512)
    path.write_bytes(zstandard.ZstdCompressor().compress(bytes(plain) + end))
    return path


def member(name: str, content: bytes, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content), kind, link
    return info, content


def changed(members: Members, name: str, change: Callable[[bytes], bytes]) -> Members:
    """The same with another content, of any size, under that name."""
    return [member(info.name, change(content)) if info.name == name else (info, content) for info, content in members]
