"""Tells systemd how far the daemon is; without NOTIFY_SOCKET every call is a no-op."""

from __future__ import annotations

import math
import os
import time

import sdnotify

IMPORTANT_SEND_SECONDS = 5.0
EXTENSION_SECONDS = 60.0
EXTENSION_INTERVAL_SECONDS = 15.0


class Supervisor:
    """READY is sent once, and only by `ready`; text that goes into STATUS is made one line.

    A supervisor that does not read never stops the daemon: progress is dropped then, READY and STOPPING wait a little.
    """

    def __init__(self) -> None:
        notifier = sdnotify.SystemdNotifier() if os.environ.get("NOTIFY_SOCKET") else None
        # Without a socket it may use (another user's, one that is gone) the notifier is deaf as well as dumb.
        self._notifier = notifier if notifier is not None and notifier.socket is not None else None
        self._status = ""
        self._extended_seconds = -math.inf

    def starting(self, text: str) -> None:
        """How far the start is; asks for more time to start as long as it goes on."""
        now = time.monotonic()
        if now - self._extended_seconds >= EXTENSION_INTERVAL_SECONDS:
            self._extended_seconds = now
            self._send(f"EXTEND_TIMEOUT_USEC={int(EXTENSION_SECONDS * 1_000_000)}", wait_seconds=0)
        if text != self._status:
            self._status = text
            self._send(_status(text), wait_seconds=0)

    def ready(self, text: str) -> None:
        self._send(f"READY=1\n{_status(text)}", wait_seconds=IMPORTANT_SEND_SECONDS)

    def stopping(self, text: str) -> None:
        self._send(f"STOPPING=1\n{_status(text)}", wait_seconds=IMPORTANT_SEND_SECONDS)

    def close(self) -> None:
        if self._notifier is not None:
            self._notifier.socket.close()

    def _send(self, state: str, *, wait_seconds: float) -> None:
        if self._notifier is not None:
            self._notifier.socket.settimeout(wait_seconds)
            self._notifier.notify(state)


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())}"
