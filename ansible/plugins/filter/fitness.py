"""What keeps a board from running edgellm, by what was found on it and what is asked of it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MIB_BYTES = 1 << 20
CONTAINER = "container"
VENV = "venv"
# Podman from here on knows the fields of CDI 0.7; the toolkit from there on writes them.
PODMAN_OF_NEW_CDI = "5.0"
TOOLKIT_OF_NEW_CDI = "1.19.1"

Found = Mapping[str, Any]
Wanted = Mapping[str, Any]
Finding = dict[str, str]


def fitness_findings(found: Found, wanted: Wanted) -> list[Finding]:
    """One finding a check that does not hold: its name, what was found, what is wanted and what to do.

    ``severity`` is ``refuse``, or ``note`` where it is taken care of or tolerated by name.
    """
    findings = [finding for check in _CHECKS for finding in check(found, wanted)]
    for finding in findings:
        if finding["check"] in wanted["tolerated"]:
            finding["severity"] = "note"
    return findings


def _architecture(found: Found, wanted: Wanted) -> Iterator[Finding]:
    if found["architecture"] not in wanted["architectures"]:
        yield _finding(
            "architecture",
            found["architecture"],
            " or ".join(wanted["architectures"]),
            "edgellm is built for these alone",
        )


def _memory(found: Found, wanted: Wanted) -> Iterator[Finding]:
    memory_mib = (found["memory_bytes"] or 0) // MIB_BYTES
    if memory_mib < wanted["memory_min_mib"]:
        yield _finding(
            "memory", f"{memory_mib} MiB", f"{wanted['memory_min_mib']} MiB", "take a board with more memory"
        )


def _disk(found: Found, wanted: Wanted) -> Iterator[Finding]:
    free_mib = found["disk"]["free_bytes"] // MIB_BYTES
    if free_mib < wanted["disk_free_min_mib"]:
        yield _finding(
            "disk",
            f"{free_mib} MiB free for {found['disk']['path']}",
            f"{wanted['disk_free_min_mib']} MiB",
            "free space, or mount a larger disk there",
        )


def _systemd(found: Found, wanted: Wanted) -> Iterator[Finding]:
    yield from _version("systemd", found["systemd"], wanted["systemd_min"], "take Debian 12, Ubuntu 24.04 or newer")


def _python(found: Found, wanted: Wanted) -> Iterator[Finding]:
    if wanted["mode"] != VENV:
        return
    yield from _version("python", found["python"], wanted["python_min"], "install a newer Python, or use containers")
    if not found["python_venv"]:
        yield _finding("python", "no ensurepip", "the module venv, whole", "install python3-venv")


def _podman(found: Found, wanted: Wanted) -> Iterator[Finding]:
    if wanted["mode"] != CONTAINER:
        return
    remedy = "take Ubuntu 24.04, Debian 13 or newer, or edgellm_mode: venv"
    yield from _version("podman", found["podman_candidate"], wanted["podman_min"], remedy)


def _board(found: Found, wanted: Wanted) -> Iterator[Finding]:
    """Machines without a GPU of NVIDIA pass: edgellm runs on their CPUs."""
    board = found["board"]
    if not board:
        if wanted["board_required"]:
            yield _finding(
                "board", "no Jetson", "a Jetson", "leave preflight_board_required off for machines without a GPU"
            )
        return
    supported = {str(row["sm"]): row for row in wanted["boards"]}
    row = supported.get(str(board.get("sm")))
    name = f"{board.get('module') or 'a Jetson of no name'} (sm_{board.get('sm') or '?'})"
    names = " or ".join(f"{each['name']} (sm_{each['sm']})" for each in wanted["boards"])
    if row is None:
        yield _finding("board", name, names, "take a board of these")
        return
    if not any(fnmatch.fnmatch(str(board.get("module")), pattern) for pattern in row.get("modules", ["*"])):
        yield _finding("board", name, " or ".join(row["modules"]), "take a module of these")
    remedy = f"flash {row['name']} with a JetPack that has it"
    yield from _version("l4t", board.get("l4t"), row["l4t_min"], remedy)


def _cdi(found: Found, wanted: Wanted) -> Iterator[Finding]:
    if wanted["mode"] != CONTAINER or not found["podman_candidate"] or not found["nvidia_ctk"]:
        return
    if numbers(found["podman_candidate"]) >= numbers(PODMAN_OF_NEW_CDI):
        return
    new_fields = sorted({field for spec in found["cdi"] for field in spec["new_fields"]})
    if not new_fields and numbers(found["nvidia_ctk"]) < numbers(TOOLKIT_OF_NEW_CDI):
        return
    finding = _finding(
        "cdi",
        f"podman {found['podman_candidate']} and nvidia-container-toolkit {found['nvidia_ctk']}"
        + (f", which wrote {', '.join(new_fields)}" if new_fields else ""),
        f"podman {PODMAN_OF_NEW_CDI}, or a toolkit before {TOOLKIT_OF_NEW_CDI}",
        "set container_runtime_cdi_rewrite: true, which takes the fields out that this podman refuses",
    )
    if wanted["cdi_rewritten"]:
        finding |= {"severity": "note", "remedy": "container_runtime_cdi_rewrite takes those fields out"}
    yield finding


_CHECKS: tuple[Callable[[Found, Wanted], Iterator[Finding]], ...] = (
    *(_architecture, _memory, _disk, _systemd, _python, _podman, _board, _cdi),
)


def _version(check: str, found: str | None, minimum: str, remedy: str) -> Iterator[Finding]:
    if found is None or numbers(found) < numbers(minimum):
        yield _finding(check, str(found or "none"), f"{minimum} or newer", remedy)


def numbers(version: str) -> tuple[int, ...]:
    """``R39.2.1`` as (39, 2, 1), to compare by."""
    return tuple(int(part) for part in re.findall(r"\d+", str(version)))


def _finding(check: str, found: str, wanted: str, remedy: str) -> Finding:
    return {"check": check, "found": found, "wanted": wanted, "remedy": remedy, "severity": "refuse"}


class FilterModule:
    """How Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fitness_findings": fitness_findings}
