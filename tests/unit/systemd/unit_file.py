"""Unit files as systemd reads them: sections of keys, each of which may come several times."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

SYSTEMD = Path(__file__).resolve().parents[3] / "systemd"

Sections = dict[str, list[tuple[str, str]]]


def read_unit(path: Path) -> Sections:
    sections: Sections = defaultdict(list)
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            name = line.strip("[]")
        else:
            key, equals, value = line.partition("=")
            assert equals, f"{path}: {line}"
            sections[name].append((key, value))
    return dict(sections)


def unit_files(*suffixes: str) -> list[Path]:
    return sorted(path for path in SYSTEMD.rglob("*") if path.suffix in suffixes)


def values(sections: Sections, section: str, key: str) -> list[str]:
    return [value for its, value in sections[section] if its == key]


def value(sections: Sections, section: str, key: str) -> str:
    """The last one counts."""
    return values(sections, section, key)[-1]
