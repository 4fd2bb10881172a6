"""The archive of `edgellm report` on a device, as whoever is to help opens it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from tests.service.appliance import Appliance

ARCHIVE = "root/report.tar.gz"


@dataclass(frozen=True, slots=True)
class Report:
    """``said`` is what the command printed, ``texts`` each file's by its name in the archive."""

    said: str
    size_bytes: int
    mode: int
    texts: Mapping[str, str]


def report_of(appliance: Appliance) -> Report:
    """A new one each time."""
    path = appliance.device.root / ARCHIVE
    path.unlink(missing_ok=True)
    said = appliance.device.run("/usr/local/bin/edgellm", "report", "--output", f"/{ARCHIVE}").output
    content = path.read_bytes()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = {one.name.partition("/")[2]: one for one in archive if one.isfile()}
        texts = {name: (archive.extractfile(one) or io.BytesIO()).read().decode() for name, one in members.items()}
    return Report(said, len(content), path.stat().st_mode & 0o777, texts)
