"""``edgellm pair HOST CODE``: verifies a board by the code that it shows, and gets a key of one's own from it."""

from __future__ import annotations

import argparse
import re
import shlex
import socket
import sys
from urllib.parse import urlsplit

from edgellm.errors import ConfigError, UsageError

PORT_DEFAULT = 8000
NAME_CHARACTERS_MAX = 48


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", help="the board: a name or address, with :PORT where it is not 8000")
    parser.add_argument("code", metavar="CODE", nargs="?", help="the code on the board's console (default: asked for)")
    parser.add_argument("--name", metavar="NAME", help="what the board calls this client (default: its host name)")


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.pairing.boards import Board
    from edgellm.service.pairing.client import BoardAddress, pair
    from edgellm.service.pairing.code import PairingCode

    if _is_code(namespace.host):
        raise UsageError("the board's name comes first, then its code — edgellm pair HOST CODE")
    host, port = _host_and_port(namespace.host)
    code = PairingCode.read(namespace.code or _asked())
    address, board = BoardAddress(host, port), Board.at(host, port)
    name = pair(address, code, _name(namespace.name), board)
    print(f"paired with {address} as {name}")
    print(f"key        {board.key_file}")
    print(f"authority  {board.authority_file}")
    print(f"\nedgellm chat --url https://{address}")
    print("\nfor OpenAI clients:\n")
    print(f"export OPENAI_BASE_URL=https://{address}/v1")
    print(f'export OPENAI_API_KEY="$(cat {shlex.quote(str(board.key_file))})"')
    print(f"export SSL_CERT_FILE={shlex.quote(str(board.authority_file))}")
    return 0


def _is_code(text: str) -> bool:
    from edgellm.service.pairing.code import PairingCode

    try:
        PairingCode.read(text)
    except ConfigError:
        return False
    return True


def _asked() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline(256).strip()
    try:
        return input("code on the board's console: ")
    except EOFError:
        raise UsageError("there is no code — give the one that the board shows") from None


def _host_and_port(text: str) -> tuple[str, int]:
    bare_ipv6 = text.count(":") > 1 and "[" not in text
    try:
        parts = urlsplit(f"//[{text}]" if bare_ipv6 else f"//{text.removeprefix('https://').rstrip('/')}")
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as a look-up would: UnicodeError is a ValueError
    except ValueError:
        host, port = None, None
    if not host or port == 0 or parts.path or "@" in text or any(letter <= " " or letter == "\x7f" for letter in text):
        raise UsageError(f"{text!r} is no board's name or address — for example edgellm-1a2b.local or 192.168.1.7:8000")
    return host, port or PORT_DEFAULT


def _name(wished: str | None) -> str:
    name = (
        wished or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:NAME_CHARACTERS_MAX].strip("-._") or "client"
    )
    if not re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX - 1}}}", name):
        raise UsageError(f"--name {name!r}: up to {NAME_CHARACTERS_MAX} letters, digits, dots, dashes and underscores")
    return name
