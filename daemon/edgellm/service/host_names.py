"""The names and addresses by which clients may know this machine, for the Host allow-list."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from edgellm.service.address import ANY_ADDRESS

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
LOCAL_DOMAIN = ".local"
_FIB_ENTRY = re.compile(r"\|--\s+(\d+\.\d+\.\d+\.\d+)\s+/32 host LOCAL")


def own_names(bound_host: str, further: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Loopback names always; this machine's own where it can be reached from outside; what the operator adds."""
    names = [*LOOPBACK_NAMES, *further]
    if bound_host in (ANY_ADDRESS, "::"):
        hostname = socket.gethostname().lower()
        names += [hostname, hostname.partition(".")[0], LOCAL_DOMAIN, *interface_addresses()]
    elif bound_host not in LOOPBACK_NAMES:
        names.append(bound_host.lower())
    return tuple(dict.fromkeys(name for name in names if name))


def certificate_names(further: Sequence[str] = ()) -> tuple[str, ...]:
    """What a certificate of this machine names: its names, that of mDNS, its addresses, what the operator adds."""
    hostname = socket.gethostname().lower()
    short = hostname.partition(".")[0]
    names = [hostname, short, f"{short}{LOCAL_DOMAIN}", *LOOPBACK_NAMES, *interface_addresses(), *further]
    return tuple(dict.fromkeys(name for name in names if name))


def interface_addresses(proc: Path = Path("/proc")) -> tuple[str, ...]:
    """Every IPv4 and IPv6 address that this machine has now; empty where the kernel does not tell."""
    return tuple(
        dict.fromkeys([*_ipv4_addresses(_read(proc / "net/fib_trie")), *_ipv6_addresses(_read(proc / "net/if_inet6"))])
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _ipv4_addresses(table: str) -> list[str]:
    # An entry and what it is stand on two lines.
    return [match[1] for match in _FIB_ENTRY.finditer(re.sub(r"\n\s+/32", " /32", table))]


def _ipv6_addresses(table: str) -> list[str]:
    rows = [line.split() for line in table.splitlines()]
    return [str(ipaddress.IPv6Address(bytes.fromhex(row[0]))) for row in rows if row and len(row[0]) == 32]
