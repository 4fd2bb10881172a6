"""``edgellm engine prune``, ``clear``, ``pin`` and ``unpin``: what stays in the store and what goes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from edgellm.cli.engine_context import ENTRY_HELP, EngineContext, entry_facts, megabytes, print_json
from edgellm.errors import UsageError

if TYPE_CHECKING:
    from edgellm.engines.store_eviction import Eviction

_BYTES_PER_GB = 2**30


def configure(action: str, parser: argparse.ArgumentParser) -> None:
    if action == "prune":
        parser.add_argument("--to-gb", metavar="GB", type=float, help="what may stay (default: the cap)")
    elif action == "clear":
        parser.add_argument("names", metavar="NAME", nargs="*", help=f"{ENTRY_HELP} (default: all that are not loaded)")
    else:
        parser.add_argument("names", metavar="NAME", nargs="+", help=ENTRY_HELP)


def run(namespace: argparse.Namespace, context: EngineContext) -> int:
    store = context.store
    if namespace.action in ("pin", "unpin"):
        for entry in context.entries(namespace.names):
            (store.pin if namespace.action == "pin" else store.unpin)(entry)
        return 0
    if namespace.action == "prune":
        if namespace.to_gb is not None and not 0 <= namespace.to_gb < float("inf"):
            raise UsageError("--to-gb must be a number of at least 0")
        return _tell(store.prune(None if namespace.to_gb is None else int(namespace.to_gb * _BYTES_PER_GB)), namespace)
    return _tell(store.remove(context.entries(namespace.names)) if namespace.names else store.clear(), namespace)


def _tell(eviction: Eviction, namespace: argparse.Namespace) -> int:
    if namespace.json:
        print_json(
            {
                "removed": [entry_facts(entry) for entry in eviction.removed],
                "kept": eviction.kept,
                "removed_checkpoints": eviction.removed_checkpoints,
                "freed_bytes": eviction.freed_bytes,
            }
        )
        return 0
    for entry in eviction.removed:
        print(f"removed {entry.name}  {megabytes(entry.size_bytes)}")
    for digest, size_bytes in eviction.removed_checkpoints.items():
        print(f"removed checkpoint {digest[:16]}  {megabytes(size_bytes)}")
    for name, reason in eviction.kept.items():
        print(f"kept    {name}  ({reason})")
    return 0
