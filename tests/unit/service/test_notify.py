"""systemd hears about stages and READY through its socket, and nobody does where there is none."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from edgellm.cli.main import main
from edgellm.errors import ConfigError
from edgellm.service.notify import Supervisor, ping_interval_seconds


def test_states_arrive_at_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        supervisor = Supervisor()
        supervisor.starting("loading\nREADY=1")
        supervisor.starting("loading\nREADY=1")  # nothing new: nothing is sent
        supervisor.ready("serving")
        supervisor.status("serving")  # nothing new
        supervisor.alive()
        supervisor.stopping("draining", drain_seconds=100)
        supervisor.failed(ValueError("it was\nwrong — mend it, Łukasz"))
        received = [receiver.recv(4096).decode() for _ in range(7)]
        supervisor.close()
    assert received == [
        "EXTEND_TIMEOUT_USEC=60000000",
        "STATUS=loading READY=1",
        "READY=1\nSTATUS=serving",
        "WATCHDOG=1",
        "EXTEND_TIMEOUT_USEC=130000000",
        "STOPPING=1\nSTATUS=draining",
        "STATUS=it was wrong — mend it, Łukasz",
    ]


def test_requests_for_more_time_may_have_a_socket_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container: what stands between passes the others on, and not these."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as between,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
    ):
        for receiver, name in ((between, "notify"), (systemd, "systemd")):
            receiver.bind(str(tmp_path / name))
            receiver.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("EDGELLM_EXTENSIONS_SOCKET", str(tmp_path / "systemd"))
        supervisor = Supervisor()
        supervisor.starting("loading")
        supervisor.stopping("draining", drain_seconds=100)
        supervisor.close()
        assert [between.recv(4096).decode() for _ in range(2)] == ["STATUS=loading", "STOPPING=1\nSTATUS=draining"]
        extensions = [systemd.recv(4096).decode() for _ in range(2)]
        assert extensions == ["EXTEND_TIMEOUT_USEC=60000000", "EXTEND_TIMEOUT_USEC=130000000"]
        monkeypatch.setenv("EDGELLM_EXTENSIONS_SOCKET", str(tmp_path / "nowhere"))
        supervisor = Supervisor()
        supervisor.starting("loading")
        supervisor.close()
        received = [between.recv(4096).decode() for _ in range(2)]
        assert received == ["EXTEND_TIMEOUT_USEC=60000000", "STATUS=loading"], "without it they go where the others go"


def test_a_reload_is_told_with_its_moment_and_ended_by_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        supervisor = Supervisor()
        before_microseconds = time.monotonic_ns() // 1000
        supervisor.reloading()
        supervisor.ready("serving")
        reloading, ready = (receiver.recv(4096).decode() for _ in range(2))
        supervisor.close()
    state, _, moment = reloading.partition("\nMONOTONIC_USEC=")
    assert state == "RELOADING=1"
    assert before_microseconds <= int(moment) <= time.monotonic_ns() // 1000
    assert ready == "READY=1\nSTATUS=serving"


def test_a_wrong_configuration_is_told_before_there_is_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "edgellm.toml"
    file.write_text("[server]\nprot = 8000\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        code = main(["serve", "--config", str(file)])
        received = receiver.recv(4096).decode()
    assert code == ConfigError.exit_code
    assert received == f"STATUS={capsys.readouterr().err.strip().removeprefix('edgellm: ')}"
    assert "server.prot" in received


def test_a_supervisor_that_does_not_read_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    monkeypatch.setattr("edgellm.service.notify.IMPORTANT_SEND_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        supervisor = Supervisor()
        for number in range(10_000):
            supervisor.starting(f"stage {number}")
        supervisor.ready("serving")
        supervisor.close()


def test_without_a_socket_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    supervisor = Supervisor()
    supervisor.ready("serving")
    supervisor.close()


# The library leaves the socket that it could not connect to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_socket_that_is_not_ours_to_use_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    supervisor = Supervisor()
    supervisor.starting("loading")
    supervisor.ready("serving")
    supervisor.close()


@pytest.mark.parametrize(
    ("environ", "interval_seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),  # that of whoever started this process
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_pings_go_by_the_watchdog_of_this_process(environ: dict[str, str], interval_seconds: float | None) -> None:
    assert ping_interval_seconds(environ) == interval_seconds
