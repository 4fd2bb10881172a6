"""Tells systemd how far the daemon is; without NOTIFY_SOCKET every call is a no-op."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

import sdnotify

IMPORTANT_SEND_SECONDS = 5.0
EXTENSION_SECONDS = 60.0
EXTENSIONS_VARIABLE = "EDGELLM_EXTENSIONS_SOCKET"
EXTENSION_INTERVAL_SECONDS = 15.0
# After a drain: workers are ended, connections closed.
RELEASE_SECONDS = 30.0
PINGS_PER_INTERVAL = 3
MICROSECONDS = 1_000_000


class Supervisor:
    """READY is sent by `ready` alone: after the start, and after each `reloading`. Text for STATUS is made one line.

    A supervisor that does not read never stops the daemon: progress is dropped then, READY and STOPPING wait a little.
    """

    def __init__(self) -> None:
        notifier = sdnotify.SystemdNotifier() if os.environ.get("NOTIFY_SOCKET") else None
        # Without a socket it may use (another user's, one that is gone) the notifier is deaf as well as dumb.
        self._notifier = notifier if notifier is not None and notifier.socket is not None else None
        self._for_extensions = _socket_for_extensions() if self.is_there else None
        self._status = ""
        self._extended_seconds = -math.inf
        self.ping_interval_seconds = ping_interval_seconds(os.environ) if self.is_there else None

    @property
    def is_there(self) -> bool:
        """Somebody listens."""
        return self._notifier is not None

    def starting(self, text: str) -> None:
        """How far the start is; asks for more time to start as long as it goes on."""
        now = time.monotonic()
        if now - self._extended_seconds >= EXTENSION_INTERVAL_SECONDS:
            self._extended_seconds = now
            self._extend(EXTENSION_SECONDS)
        self.status(text)

    def status(self, text: str) -> None:
        """What it does now, for people; sent when it changed."""
        if text != self._status:
            self._status = text
            self._send(_status(text), wait_seconds=0)

    def ready(self, text: str) -> None:
        self._status = text
        self._send(f"READY=1\n{_status(text)}", wait_seconds=IMPORTANT_SEND_SECONDS)

    def reloading(self) -> None:
        """A new configuration is being taken on; ``ready`` ends it."""
        state = f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"
        self._send(state, wait_seconds=IMPORTANT_SEND_SECONDS)

    def alive(self) -> None:
        """A ping for the watchdog. To be called from the event loop alone: that it still turns is what it says."""
        self._send("WATCHDOG=1", wait_seconds=0)

    def stopping(self, text: str, *, drain_seconds: float = 0.0) -> None:
        """The end has begun; asks for as long as running requests may take."""
        self._status = text
        self._extend(drain_seconds + RELEASE_SECONDS)
        self._send(f"STOPPING=1\n{_status(text)}", wait_seconds=IMPORTANT_SEND_SECONDS)

    def failed(self, error: BaseException) -> None:
        """Why it ends: systemctl status goes on showing it."""
        self._send(_status(str(error)), wait_seconds=IMPORTANT_SEND_SECONDS)

    def close(self) -> None:
        if self._notifier is not None:
            self._notifier.socket.close()
        if self._for_extensions is not None:
            self._for_extensions.close()

    def _extend(self, seconds: float) -> None:
        text = f"EXTEND_TIMEOUT_USEC={int(seconds * MICROSECONDS)}"
        if self._for_extensions is None:
            self._send(text, wait_seconds=0)
            return
        with suppress(OSError):
            self._for_extensions.send(text.encode())

    def _send(self, state: str, *, wait_seconds: float) -> None:
        if self._notifier is not None:
            self._notifier.socket.settimeout(wait_seconds)
            # The notifier's own method takes text for Latin-1, and drops it where it is not: our dashes are not.
            with suppress(OSError):
                self._notifier.socket.sendall(state.encode())


def ping_interval_seconds(environ: Mapping[str, str]) -> float | None:
    """Time between pings by the unit's WatchdogSec; None where there is no watchdog, or it is another process's.

    In a container the process has another number than systemd knows it by, and WATCHDOG_PID is not passed on.
    """
    interval, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not interval.isdecimal() or int(interval) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(interval) / MICROSECONDS / PINGS_PER_INTERVAL


def _socket_for_extensions() -> socket.socket | None:
    """To systemd itself, where a container's monitor stands between and passes these messages on to nobody."""
    path = os.environ.get(EXTENSIONS_VARIABLE)
    if not path:
        return None
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        connected.setblocking(False)
        connected.connect(path)
    except OSError:
        connected.close()
        return None
    return connected


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())}"
