"""Archives of engines, whole in form at their beginning and with no engine in them."""

from __future__ import annotations

from pathlib import Path

import zstandard
from tests.image.container_archives import write_tar


def engine_archive(path: Path) -> Path:
    """The same bytes each time."""
    plain = write_tar(path, {"manifest.json": b"{}", "archive.json": b"{}", "bundle/engine": b"engine" * 1000})
    path.write_bytes(zstandard.compress(plain.read_bytes()))
    return path
