"""``edgellm keys``: adds, lists and revokes the API keys of clients. A running daemon takes changes by itself."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edgellm.cli.arguments import add_config_option, load_from_arguments
from edgellm.errors import ConfigError
from edgellm.host.option_types import named_path
from edgellm.serving.priority import Priority


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="add|list|revoke", required=True)
    add = actions.add_parser("add", help="make a key for a new client and print it, this once")
    add.add_argument("name", metavar="NAME", help="the client, as it appears in logs and counters")
    add.add_argument(
        "--priority",
        choices=[priority.value for priority in Priority],
        default=Priority.NORMAL.value,
        help="the class its requests wait in (default: normal)",
    )
    listing = actions.add_parser(
        "list", help="the clients that have a key, their priority, and the beginning of its SHA-256"
    )
    revoke = actions.add_parser("revoke", help="take a client's key back; what it has running ends")
    revoke.add_argument("name", metavar="NAME", help="a name of edgellm keys list")
    for action in (add, listing, revoke):
        action.add_argument(
            "--api-keys-file", metavar="FILE", type=named_path, help="the key file (default: server.api_keys_file)"
        )
        add_config_option(action)


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.api_keys import add_key, read_keys_left, revoke_key

    path = _key_file(namespace)
    if namespace.action == "list":
        for key in read_keys_left(path):
            print(f"{key.name:<20} {key.priority.value:<6} sha256:{key.sha256.hex()[:12]}…")
    elif namespace.action == "add":
        print(add_key(path, namespace.name, Priority(namespace.priority)))
        sys.stderr.write(f"edgellm: {namespace.name} has this key now; only its hash is kept, in {path}\n")
    else:
        left = revoke_key(path, namespace.name)
        note = "" if left else " — no key is left: the server refuses everybody until one is added"
        sys.stderr.write(f"edgellm: the key of {namespace.name} is revoked{note}\n")
    return 0


def _key_file(namespace: argparse.Namespace) -> Path:
    loaded = load_from_arguments(namespace)
    path: Path | None = loaded.settings.server.api_keys_file
    if path is None:
        raise ConfigError(
            f"server.api_keys_file is not set in {loaded.file or 'any configuration file'} — set it there, or name the "
            "file with --api-keys-file"
        )
    return path
