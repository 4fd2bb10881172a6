"""Release: one version of edgellm on this host, as an environment or as an image."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

DIGEST_CHARACTERS = 12
_ID = re.compile(r"[0-9a-z][0-9a-z.+_-]{0,99}-[0-9a-f]{12}")


class Kind(Enum):
    """The modes of `edgellm install`."""

    VENV = "venv"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True)
class Release:
    """``digest`` is of what was installed: the wheels', or the image's id. ``time_seconds`` is of the first start.

    ``pinned_engines`` were pinned for it and are let go with it.
    """

    kind: Kind
    version: str
    digest: str
    time_seconds: float = 0.0
    pinned_engines: Sequence[str] = field(default=())

    @property
    def id(self) -> str:
        return f"{self.version.lower()}-{self.digest[:DIGEST_CHARACTERS]}"

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind.value,
            "version": self.version,
            "digest": self.digest,
            "time_seconds": self.time_seconds,
            "pinned_engines": list(self.pinned_engines),
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Release:
        """Raises ValueError, KeyError or TypeError for what no Release was written as."""
        release = cls(
            Kind(value["kind"]),
            str(value["version"]),
            str(value["digest"]),
            float(value["time_seconds"]),
            tuple(str(name) for name in value.get("pinned_engines", ())),
        )
        if not _ID.fullmatch(release.id) or release.id != value["id"]:
            raise ValueError(f"{value.get('id')!r} is no release")
        return release
