"""``edgellm engine list``, ``show`` and ``verify``: what lies in the store."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from edgellm.cli.engine_context import ENTRY_HELP, EngineContext, entry_facts, megabytes, print_json
from edgellm.cli.progress_line import ProgressLine

if TYPE_CHECKING:
    from edgellm.engines.store_entries import Entry

_SHORT_DIGITS = 12


def configure(action: str, parser: argparse.ArgumentParser) -> None:
    if action != "list":
        parser.add_argument(
            "names", metavar="NAME", nargs="+" if action == "show" else "*", help=f"{ENTRY_HELP} (default: all)"
        )


def run(namespace: argparse.Namespace, context: EngineContext) -> int:
    entries = context.entries(getattr(namespace, "names", ()))
    if namespace.action == "list":
        return _list(entries, as_json=namespace.json)
    if namespace.action == "show":
        return _show(entries, as_json=namespace.json)
    return _verify(entries, context, as_json=namespace.json)


def _list(entries: list[Entry], *, as_json: bool) -> int:
    from edgellm.engines.store_eviction import is_loaded

    entries = sorted(entries, key=lambda entry: (-entry.last_used_ns, entry.name))
    if as_json:
        print_json([entry_facts(entry) for entry in entries])
        return 0
    for entry in entries:
        marks = [
            *(["loaded"] if is_loaded(entry) else []),
            *(["read-only"] if entry.read_only else []),
            *(["pinned"] if entry.pinned else []),
            *([f"unreadable: {entry.problem}"] if entry.problem else []),
        ]
        kind = entry.manifest.builder if entry.manifest else "-"
        print(f"{entry.name}  {kind}  {megabytes(entry.size_bytes)}  {', '.join(marks)}".rstrip())
    return 0


def _show(entries: list[Entry], *, as_json: bool) -> int:
    from edgellm.errors import BundleDamagedError, ManifestVersionError

    for entry in entries:
        if entry.manifest is None:
            error = ManifestVersionError if entry.is_newer else BundleDamagedError
            raise error(entry.problem or entry.name)
        if as_json:
            print_json({"folder": str(entry.directory), **entry.manifest.as_json()})
            continue
        facts = {**entry_facts(entry), "components": ", ".join(entry.manifest.components)}
        for name, value in facts.items():
            if value not in (None, False):
                print(f"{name:<12} {value}")
        for name, value in entry.manifest.key.inputs.items():
            print(f"  {name:<32} {'none' if value is None else value}")
        for name, record in entry.manifest.files.items():
            print(f"  {name:<32} {record.size_bytes:>14} bytes  sha256 {record.sha256[:_SHORT_DIGITS]}…")
    return 0


def _verify(entries: list[Entry], context: EngineContext, *, as_json: bool) -> int:
    from edgellm.errors import EngineError

    found: dict[str, list[str]] = {}
    with ProgressLine() as line:
        for entry in entries:
            found[entry.name] = context.store.verify(entry, line.show)
    newer = {entry.name for entry in entries if entry.is_newer}
    if as_json:
        print_json(
            [{"name": name, "problems": problems, "made_by_newer": name in newer} for name, problems in found.items()]
        )
    else:
        for name, problems in found.items():
            verdict = "as built" if not problems else "made by a newer edgellm" if name in newer else "DAMAGED"
            print(f"{name}  {verdict}")
            for problem in problems:
                print(f"    {problem}")
    return EngineError.exit_code if any(found.values()) else 0
