"""Three boards as processes in networks of their own, and HAProxy before them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.gateway.board_network import BoardNetwork, why_not
from tests.gateway.gateway_process import GatewayProcess
from tests.http.daemon_process import Daemon
from tests.lab.needs import need

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.source import resolve

KEYS = {name: f"{name}-key-of-the-test" for name in ("alice", "bob", "carol")}
BOARD_PORT = 8000

StartGateway = Callable[..., GatewayProcess]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.system)
            item.add_marker(pytest.mark.model)


class Board:
    """A daemon at an address of its own."""

    def __init__(self, number: int, source: Path, *options: str, authority: Path | None = None) -> None:
        self.name = f"board-{number}"
        self.network = BoardNetwork(number)
        self._source, self._options, self._authority = source, options, authority
        self.daemon: Daemon | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self.network.address, BOARD_PORT

    def start(self, *options: str) -> Board:
        self.daemon = Daemon(
            self._source,
            *("--host", "0.0.0.0", "--port", str(BOARD_PORT), "--threads", "1"),
            *("--trusted-gateways", self.network.gateway_address, *self._options, *options),
            authority=self._authority,
            within=self.network.inside,
        )
        assert self.daemon.url
        return self

    @property
    def running(self) -> Daemon:
        assert self.daemon is not None
        return self.daemon

    def kill(self) -> None:
        self.running.process.kill()
        self.running.process.wait()
        self.running.stop()

    def remove(self) -> None:
        try:
            if self.daemon is not None:
                self.daemon.stop()
        finally:
            self.network.remove()


def addresses(boards: Sequence[Board]) -> dict[str, tuple[str, int]]:
    return {board.name: board.address for board in boards}


@pytest.fixture(scope="session")
def model_source() -> Path:
    return resolve("smollm2-135m-instruct", models_dir(default_cache_dir(os.environ))).path


@pytest.fixture(scope="session")
def gateway_tools() -> None:
    """Skips where there can be no gateway; the gate has what it takes."""
    reason = why_not() or ("" if Path("/usr/sbin/haproxy").exists() else "needs haproxy")
    if not reason and importlib.util.find_spec("ansible") is None:
        reason = "needs ansible-core: sh daemon/setup/run fleet"
    need(reason)


@pytest.fixture(scope="session")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("".join(f"{name}:{key}\n" for name, key in KEYS.items()))
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def boards(gateway_tools: None, model_source: Path, keys_file: Path) -> Iterator[list[Board]]:
    made: list[Board] = []
    try:
        made.extend(Board(number, model_source, "--api-keys-file", str(keys_file)) for number in range(1, 4))
        for board in made:
            board.start()
        for board in made:
            board.running.wait_for(lambda board=board: "ready" in board.running.log)  # type: ignore[misc]
        yield made
    finally:
        for board in made:
            board.remove()


@pytest.fixture
def start_gateway(boards: list[Board], tmp_path: Path) -> Iterator[StartGateway]:
    """``start_gateway(gateway_stickiness="none")``: with all boards ready, unless others are given."""
    started: list[GatewayProcess] = []

    def start(served: Sequence[Board] | None = None, **variables: object) -> GatewayProcess:
        chosen = boards if served is None else served
        one = GatewayProcess(tmp_path, addresses(chosen), **variables)
        started.append(one)
        one.start().wait_until_up(*(board.name for board in chosen))
        return one

    try:
        yield start
    finally:
        for one in started:
            one.stop()
