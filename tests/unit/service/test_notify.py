"""systemd hears about stages and READY through its socket, and nobody does where there is none."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from edgellm.service.notify import Supervisor


def test_states_arrive_at_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        supervisor = Supervisor()
        supervisor.status("loading\nREADY=1")
        supervisor.extend_start(1.5)
        supervisor.ready("serving")
        supervisor.stopping("draining")
        received = [receiver.recv(4096).decode() for _ in range(4)]
        supervisor.close()
    assert received == [
        "STATUS=loading READY=1",
        "EXTEND_TIMEOUT_USEC=1500000",
        "READY=1\nSTATUS=serving",
        "STOPPING=1\nSTATUS=draining",
    ]


def test_without_a_socket_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    supervisor = Supervisor()
    assert not supervisor.present
    supervisor.ready("serving")
    supervisor.close()
