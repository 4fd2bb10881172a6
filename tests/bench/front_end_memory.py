"""Memory of the daemon over a model of 0.3 MB, which lives in its worker: idle, and with idle connections."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from tests.bench.http_comparison import CLIENT_TIMEOUT_SECONDS, Finding
from tests.bench.statistics_of_rounds import Spread
from tests.http.daemon_process import Daemon
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint

from edgellm.service.open_files import raise_open_files_limit

BYTES_PER_MB = 1_000_000
IDLE_CONNECTIONS = 1_000
CLIENT_ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")  # each below what one address may have
IDLE_MB_MAX = 100
CONNECTIONS_MB_MAX = 60


def proportional_set_mb(process_id: int) -> float:
    for line in Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / BYTES_PER_MB
    raise RuntimeError("no Pss in smaps_rollup")


def front_end_memory(folder: Path) -> list[Finding]:
    raise_open_files_limit(IDLE_CONNECTIONS)
    tiny = write_checkpoint(folder / "tiny", VARIANTS["llama-multi-query"])
    daemon = Daemon(tiny, "--cache-dir", str(folder / "cache"), "--threads", "1")
    try:
        daemon.wait_until_ready()
        daemon.chat("x", max_tokens=1)
        idle = proportional_set_mb(daemon.process.pid)
        with ExitStack() as stack:
            for number in range(IDLE_CONNECTIONS):
                stack.enter_context(_kept_alive(daemon, CLIENT_ADDRESSES[number % len(CLIENT_ADDRESSES)]))
            more = proportional_set_mb(daemon.process.pid) - idle
    finally:
        daemon.stop()
    return [
        Finding("front end, idle (Pss)", Spread.of([idle]), "MB", 0, f"<= {IDLE_MB_MAX}", idle <= IDLE_MB_MAX),
        Finding(
            f"{IDLE_CONNECTIONS} idle connections, more than that",
            Spread.of([more]),
            "MB",
            1,
            f"<= {CONNECTIONS_MB_MAX}",
            more <= CONNECTIONS_MB_MAX,
        ),
    ]


def _kept_alive(daemon: Daemon, source_address: str) -> socket.socket:
    """A connection that has had an answer and waits for more to ask."""
    connection = socket.create_connection(
        daemon.address, timeout=CLIENT_TIMEOUT_SECONDS, source_address=(source_address, 0)
    )
    connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
        raise RuntimeError("a connection was not answered")
    return connection
