"""Takes the listening socket before anything is loaded, and says who holds it when it is taken."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from edgellm.errors import ConfigError, PortUnavailableError

LOOPBACK = "127.0.0.1"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 -- chosen only when API keys are set
BACKLOG_CONNECTIONS = 512
_LISTEN_STATE = "0A"


@dataclass(frozen=True, slots=True)
class Listener:
    """An open listening socket and the URL a client on this machine reaches it by."""

    socket: socket.socket
    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        reachable = {ANY_ADDRESS: LOOPBACK, "::": "::1"}.get(self.host, self.host)
        return f"{self.scheme}://{f'[{reachable}]' if ':' in reachable else reachable}:{self.port}"


REMEDY = "set server.api_keys_file, bind 127.0.0.1, or say --insecure-no-keys"


def bind_host(configured: str | None, *, has_keys: bool, insecure_no_keys: bool = False, remedy: str = REMEDY) -> str:
    """The address to bind. Raises ConfigError for an address beyond this machine that nothing protects."""
    if configured is None:
        return ANY_ADDRESS if has_keys else LOOPBACK
    if has_keys or insecure_no_keys or _is_loopback(configured):
        return configured
    raise ConfigError(f"host {configured} would let everyone who reaches this machine use the model — {remedy}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int, scheme: str = "http") -> Listener:
    """Open the socket. Raises PortUnavailableError or ConfigError with what to do."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"server.host {host!r} is no address of this machine — give an IP address or name") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise _explain(error, host, port) from None
    listener.setblocking(False)
    return Listener(listener, host, listener.getsockname()[1], scheme)


def _explain(error: OSError, host: str, port: int) -> Exception:
    if error.errno == errno.EADDRINUSE:
        holder = holder_of(port)
        return PortUnavailableError(
            f"port {port} on {host} is in use{f' by {holder}' if holder else ''} — stop that program or choose "
            "another port with server.port or --port"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return ConfigError(
            f"port {port} needs rights that this user lacks — choose one above 1023 with server.port or --port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        # It may come with the network, so that a service manager may try again.
        return PortUnavailableError(
            f"server.host {host} is no address of this machine now — list them with: ip address"
        )
    return PortUnavailableError(f"cannot listen on {host} port {port}: {error.strerror}")


def holder_of(port: int, proc: Path = Path("/proc")) -> str:
    """``name (pid N)`` of the process that listens on the port, or "" when this user may not see it."""
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            rows = (proc / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == _LISTEN_STATE and int(columns[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{columns[9]}]")
    for process in proc.iterdir() if inodes else ():
        if not process.name.isdigit():
            continue
        try:
            if any(os.readlink(descriptor) in inodes for descriptor in (process / "fd").iterdir()):
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                return f"{name} (pid {process.name})"
        except OSError:  # it ended meanwhile, or belongs to another user
            continue
    return ""
