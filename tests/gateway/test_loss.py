"""A board that dies loses what it was answering, and nothing else; nothing that may have run is sent twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import openai
import pytest
from tests.gateway.conftest import KEYS, Board, StartGateway
from tests.gateway.gateway_process import GatewayProcess, get
from tests.gateway.traffic import LONG, SteadyClient, chat, stream

LONG_TOKENS = 4000


def board_of(gateway: GatewayProcess, boards: list[Board], key: str) -> Board:
    """The board where the client of that key is."""
    before = gateway.requests()
    assert chat(gateway.url, key).status_code == 200
    after = gateway.requests()
    return next(board for board in boards if after[board.name] > before[board.name])


def requests_begun(board: Board) -> float:
    """As the board itself counts them."""
    text = get(f"{board.running.url.replace('127.0.0.1', board.address[0])}/metrics", headers=AUTHORISED).text
    lines = [line for line in text.splitlines() if line.startswith("edgellm_requests_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


AUTHORISED = {"Authorization": f"Bearer {KEYS['alice']}"}


@pytest.fixture(autouse=True)
def _all_boards_again(boards: list[Board]) -> Iterator[None]:
    yield
    for board in boards:
        board.network.plug_in()
        if board.running.process.poll() is not None:
            board.start()
    for board in boards:
        board.running.wait_for(lambda board=board: "ready after" in board.running.log)  # type: ignore[misc]


def test_a_killed_board_loses_its_own_requests_alone(start_gateway: StartGateway, boards: list[Board]) -> None:
    gateway = start_gateway()
    with ExitStack() as held:
        streams = {}
        for key in KEYS.values():
            with_key = gateway.requests()
            streams[key] = held.enter_context(stream(gateway.url, key, 600))
            assert gateway.requests() != with_key
        victim = next(board for board in boards if gateway.in_flight(board.name))
        lost = gateway.in_flight(victim.name)
        of_steady = board_of(gateway, boards, KEYS["alice"])
        with SteadyClient(gateway.url, KEYS["alice"]) as steady:
            gateway.wait_for(lambda: steady.answered > 2, "a few answers")
            before = steady.answered
            victim.kill()
            gateway.wait_for(lambda: gateway.statuses()[victim.name] == "DOWN", "the loss")
            gateway.wait_for(lambda: steady.answered > before + 5, "further answers")
        ends = [each.rest() for each in streams.values()]
    assert ends.count("lost") == lost
    assert ends.count("length") == len(KEYS) - lost
    # What the steady client had at that board may be lost too: one request, which had begun.
    assert len(steady.failures) <= int(of_steady is victim), steady.failures


def test_a_request_that_may_have_run_is_not_sent_again(start_gateway: StartGateway, boards: list[Board]) -> None:
    gateway = start_gateway()
    victim = board_of(gateway, boards, KEYS["bob"])
    others = [board for board in boards if board is not victim]
    before = sum(map(requests_begun, others))
    with (
        ThreadPoolExecutor(1) as pool,
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEYS["bob"], max_retries=0) as client,
    ):
        asked = pool.submit(client.chat.completions.create, model="smollm2", **LONG, max_tokens=LONG_TOKENS)  # type: ignore[call-overload]
        gateway.wait_for(lambda: gateway.in_flight(victim.name) == 1, "the request at its board")
        victim.running.wait_for(lambda: victim_is_busy(victim))
        victim.kill()
        with pytest.raises(openai.InternalServerError) as caught:
            asked.result()
    assert caught.value.status_code == 502
    assert caught.value.code == "worker_failed"
    assert sum(map(requests_begun, others)) == before
    # The client's next request goes elsewhere at once.
    assert chat(gateway.url, KEYS["bob"]).status_code == 200
    assert sum(map(requests_begun, others)) == before + 1


def victim_is_busy(board: Board) -> bool:
    url = board.running.url.replace("127.0.0.1", board.address[0])
    return bool(get(f"{url}/health", headers=AUTHORISED).json()["running_requests"] == 1)


def test_a_board_that_vanished_is_given_up_and_clients_are_told(
    start_gateway: StartGateway, boards: list[Board], capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = start_gateway()
    with stream(gateway.url, KEYS["carol"], LONG_TOKENS) as held:
        victim = next(board for board in boards if gateway.in_flight(board.name))
        began = time.monotonic()
        victim.network.unplug()
        assert held.rest() == "lost"
        seconds = time.monotonic() - began
        with capsys.disabled():
            print(f"\nboard unplugged to the end of its stream, silent after 5 s: {seconds:.1f} s", end="")
        gateway.wait_for(lambda: gateway.statuses()[victim.name] == "DOWN", "the loss")
        assert chat(gateway.url, KEYS["carol"]).status_code == 200
    victim.network.plug_in()
    gateway.wait_for(lambda: victim.name in gateway.up(), "the board's return")


def test_a_connection_that_is_refused_costs_no_request(start_gateway: StartGateway, boards: list[Board]) -> None:
    gateway = start_gateway()
    victim = board_of(gateway, boards, KEYS["alice"])
    victim.kill()  # the gateway's next check is to come
    assert chat(gateway.url, KEYS["alice"]).status_code == 200


def test_without_a_ready_board_clients_are_told_when_to_ask_again(
    start_gateway: StartGateway, boards: list[Board]
) -> None:
    gateway = start_gateway()
    assert get(f"{gateway.url}/health/ready").status_code == 200
    for board in boards:
        gateway.ask(f"set server boards/{board.name} state maint")
    for answer in (get(f"{gateway.url}/health/ready"), chat(gateway.url, KEYS["alice"])):
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "5"
    assert answer.json()["error"]["code"] == "model_unavailable"
    assert get(f"{gateway.url}/health/live").status_code == 200
