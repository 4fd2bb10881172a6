"""Every `podman run` of the repository, written or documented, goes without the image's health check, or says why not.

Podman sets up a timer on the host for it, which stays and fails where the container is gone before the timer is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.systemd.unit_file import SYSTEMD

CHECKOUT = SYSTEMD.parent
OPTION = "--no-healthcheck"
REASON = "health check"  # in the comment before it
# In a shell, in a list of Python's, or in one of YAML.
RUN = re.compile(r"""podman["']?,?(?:\s+-)?\s+["']?run["']?,?(?:\s+-)?\s+["']?--""")
GOES_ON_AFTER = ("\\", ",", "(", " run")
GOES_ON_WITH = ("-", "*(")
FILES = ("README.md", "CHANGELOG.md", "Makefile", "Containerfile", ".ci/run")
FOLDERS = ("ansible", "daemon", "image", "systemd", "tests")
FILE_BYTES_MAX = 1 << 20  # larger ones are data


def runs_of(text: str) -> Iterator[tuple[int, str, str]]:
    """The number of the line, the command with the lines that it goes on over, and the line before it."""
    lines = text.splitlines()
    for found in RUN.finditer(text):
        first = text.count("\n", 0, found.start())
        end = first + 1
        while end < len(lines) and (
            lines[end - 1].rstrip().endswith(GOES_ON_AFTER) or lines[end].lstrip().startswith(GOES_ON_WITH)
        ):
            end += 1
        yield first + 1, "\n".join(lines[first:end]), lines[first - 1] if first else ""


def files_of_the_repository() -> Iterator[Path]:
    yield from (CHECKOUT / name for name in FILES)
    for folder in FOLDERS:
        for path in sorted((CHECKOUT / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc" and path.stat().st_size <= FILE_BYTES_MAX:
                yield path


@pytest.mark.parametrize(
    ("text", "has_it"),
    [
        ("podman run --rm image\n", False),
        ("podman run --rm \\\n    --no-healthcheck image\n", True),
        ("podman run --rm image\n\nelsewhere --no-healthcheck\n", False),
        ('RUN = ("podman", "run", "--rm")\n', False),
        ('run(\n    "podman", "run", "--rm",\n    "--no-healthcheck",\n)\n', True),
        ("argv:\n  - podman\n  - run\n  - --rm\n  - image\nname: --no-healthcheck\n", False),
        ("argv:\n  - podman\n  - run\n  - --rm\n  - --no-healthcheck\n", True),
    ],
)
def test_a_run_is_found_in_every_way_of_writing(text: str, has_it: bool) -> None:
    ((_, command, _),) = runs_of(text)
    assert (OPTION in command) is has_it


def test_no_container_leaves_a_timer_of_its_health_check() -> None:
    own = Path(__file__).resolve()
    found, wrong = 0, []
    for path in files_of_the_repository():
        if path == own:
            continue
        for line, command, before in runs_of(path.read_text(encoding="utf-8", errors="replace")):
            found += 1
            if OPTION not in command and REASON not in before:
                wrong.append(f"{path.relative_to(CHECKOUT)}:{line}")
    assert found >= 8
    assert wrong == []
