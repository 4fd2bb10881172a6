"""``edgellm pair-code``: opens a code with which one client can pair with this board, and shows it."""

from __future__ import annotations

import argparse
import json
import socket
from typing import Final

from edgellm.cli.admin_option import add_admin_option, admin_socket
from edgellm.cli.arguments import add_config_option
from edgellm.host.option_types import duration

MINUTES_DEFAULT: Final = 15.0
MINUTES_MIN: Final = 1.0
MINUTES_MAX: Final = 1440.0
SECONDS_PER_MINUTE: Final = 60.0


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--minutes",
        metavar="N",
        type=duration("minutes", MINUTES_MAX, MINUTES_MIN),
        default=MINUTES_DEFAULT,
        help=f"how long the code is open, from {MINUTES_MIN:g} to {MINUTES_MAX:g} (default: {MINUTES_DEFAULT:g})",
    )
    what.add_argument("--close", action="store_true", help="close the code that is open")
    what.add_argument("--status", action="store_true", help="say whether a code is open, without a new one")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    add_admin_option(parser)
    add_config_option(parser)


def run(namespace: argparse.Namespace) -> int:
    import msgspec

    from edgellm.service.admin_client import ask_daemon
    from edgellm.service.admin_messages import ClosePairing, OpenPairing, Request, ShowPairing

    request: Request = OpenPairing(namespace.minutes * SECONDS_PER_MINUTE)
    if namespace.close or namespace.status:
        request = ClosePairing() if namespace.close else ShowPairing()
    done = ask_daemon(admin_socket(namespace), request)
    state = done.pairing
    if namespace.json:
        print(json.dumps(None if state is None else msgspec.to_builtins(state)))
    elif namespace.close:
        print("\n".join(done.lines))
    elif state is None:
        print("no pairing code is open")
    elif state.code is None:
        used = ", and a client has used it" if state.is_used else ""
        print(f"a pairing code is open for {state.left_seconds / SECONDS_PER_MINUTE:.0f} more minutes{used}")
    else:
        print(f"pairing code  {state.code}")
        print(f"              for one client, in the next {state.left_seconds / SECONDS_PER_MINUTE:.0f} minutes:")
        print(f"              edgellm pair {socket.gethostname().partition('.')[0]}.local {state.code}")
        print(f"authority     SHA-256 {state.fingerprint}")
    return 0
