"""Tells systemd how far the daemon is; without NOTIFY_SOCKET every call is a no-op."""

from __future__ import annotations

import os

import sdnotify


class Supervisor:
    """READY is sent once, and only by `ready`; text that goes into STATUS is made one line."""

    def __init__(self) -> None:
        self.present = bool(os.environ.get("NOTIFY_SOCKET"))
        self._notifier = sdnotify.SystemdNotifier() if self.present else None

    def status(self, text: str) -> None:
        self._send(f"STATUS={' '.join(text.split())}")

    def extend_start(self, seconds: float) -> None:
        """Ask for that much more time to start, counted from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def ready(self, text: str) -> None:
        self._send(f"READY=1\nSTATUS={' '.join(text.split())}")

    def stopping(self, text: str) -> None:
        self._send(f"STOPPING=1\nSTATUS={' '.join(text.split())}")

    def close(self) -> None:
        if self._notifier is not None:
            self._notifier.socket.close()

    def _send(self, state: str) -> None:
        if self._notifier is not None:
            self._notifier.notify(state)
