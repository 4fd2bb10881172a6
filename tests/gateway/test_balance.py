"""Where requests go: to the board with the fewest, and to the board where a client was before."""

from __future__ import annotations

from contextlib import ExitStack

import anthropic
import httpx
import openai
import yaml
from tests.gateway.conftest import KEYS, Board, StartGateway
from tests.gateway.gateway_process import get
from tests.gateway.traffic import SHORT, chat, stream
from tests.http.test_alerts import ALERTS
from tests.http.test_dashboard import names_and_labels

LONG_TOKENS = 4000


def test_the_official_clients_are_served_and_their_answers_stream(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEYS["alice"], max_retries=0) as client:
        whole = client.chat.completions.create(model="smollm2", **SHORT)  # type: ignore[call-overload]
        assert whole.choices[0].message.content
        assert [model.id for model in client.models.list()] == ["smollm2"]
    with anthropic.Anthropic(base_url=gateway.url, api_key=KEYS["alice"], max_retries=0) as other:
        message = other.messages.create(model="smollm2", max_tokens=4, messages=[{"role": "user", "content": "Hi"}])
        assert message.content
    with stream(gateway.url, KEYS["alice"], LONG_TOKENS) as held:
        # The first token is here while the board is at the others.
        assert gateway.in_flight(next(name for name, count in gateway.requests().items() if count)) == 1
        assert held.first["object"] == "chat.completion.chunk"


def test_a_client_stays_at_its_board_by_its_key_however_it_is_sent(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    key = KEYS["alice"]
    for headers in ({"Authorization": f"Bearer {key}"}, {"Authorization": f"bearer {key}"}, {"x-api-key": key}):
        for _ in range(2):
            assert httpx.get(f"{gateway.url}/v1/models", headers=headers).status_code == 200
    assert sorted(gateway.requests().values()) == [0, 0, 6]
    table = gateway.ask("show table boards")
    assert key not in table
    assert table.count("key=") == 2  # its digest, and the name of its board


def test_requests_go_to_the_boards_that_have_the_fewest(start_gateway: StartGateway, boards: list[Board]) -> None:
    gateway = start_gateway(gateway_stickiness="none")
    with ExitStack() as held:
        for _ in boards:
            held.enter_context(stream(gateway.url, KEYS["alice"], LONG_TOKENS))
        gateway.wait_for(lambda: {gateway.in_flight(board.name) for board in boards} == {1}, "one for each")


def test_clients_with_one_key_are_told_apart_by_address_where_that_is_chosen(start_gateway: StartGateway) -> None:
    gateway = start_gateway(gateway_stickiness="address", gateway_address="0.0.0.0")
    with ExitStack() as held:
        for address in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            transport = httpx.HTTPTransport(local_address=address)
            client = held.enter_context(httpx.Client(transport=transport))
            body = {**SHORT, "max_tokens": LONG_TOKENS, "logit_bias": {"2": -100}, "stream": True}
            headers = {"Authorization": f"Bearer {KEYS['alice']}"}
            url = f"{gateway.url}/v1/chat/completions"
            answer = held.enter_context(client.stream("POST", url, json=body, headers=headers))
            assert answer.status_code == 200
        assert sorted(gateway.requests().values()) == [1, 1, 1]


def test_only_its_own_names_and_the_api_are_served(start_gateway: StartGateway) -> None:
    gateway = start_gateway(gateway_names=["llm.example"])
    headers = {"Authorization": f"Bearer {KEYS['alice']}"}
    for host, status in {"llm.example": 200, "LLM.example:443": 200, "127.0.0.1": 200, "rebound.example": 403}.items():
        answer = get(f"{gateway.url}/v1/models", headers={**headers, "Host": host})
        assert answer.status_code == status, host
        if status == 403:
            assert answer.json()["error"]["code"] == "not_allowed"
    for path in ("/metrics", "/", "/health", "/docs", "/v1/../metrics"):
        answer = get(f"{gateway.url}{path}", headers=headers)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] == "not_found"
    assert get(f"{gateway.url}/v1/models").status_code == 401  # a board asks for the key


def test_boards_learn_who_the_client_is_and_not_who_it_says_it_is(
    start_gateway: StartGateway, boards: list[Board], model_source: object
) -> None:
    gateway = start_gateway(boards[:1], gateway_address="0.0.0.0")
    daemon = boards[0].running
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.7")) as client:
        headers = {"Authorization": f"Bearer {KEYS['alice']}", "X-Forwarded-For": "203.0.113.9", "Forwarded": "for=a"}
        url = f"{gateway.url}/v1/chat/completions"
        assert client.post(url, json=SHORT, headers=headers, timeout=60).status_code == 200
    daemon.wait_for(lambda: "127.0.0.7 POST /v1/chat/completions 200" in daemon.log)
    assert "203.0.113.9" not in daemon.log


def test_nothing_of_a_client_is_in_the_gateways_log(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    headers = {"Authorization": f"Bearer {KEYS['alice']}"}
    canary = "canary-of-a-prompt"
    get(f"{gateway.url}/v1/models?{canary}", headers=headers)
    chat(gateway.url, KEYS["alice"], messages=[{"role": "user", "content": canary}])
    gateway.wait_for(lambda: "POST /v1/chat/completions 200" in gateway.log.read_text(), "the log's line")
    log = gateway.log.read_text()
    assert canary not in log
    assert KEYS["alice"] not in log


def test_alerts_of_the_gateway_ask_for_metrics_that_it_has(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    text = get(f"http://127.0.0.1:{gateway.stats_port}/metrics").text
    groups = {group["name"]: group["rules"] for group in yaml.safe_load(ALERTS.read_text())["groups"]}
    for rule in groups["edgellm-gateway"]:
        names, _ = names_and_labels(rule["expr"])
        for name in names:
            assert f'{name}{{proxy="boards"' in text, f"{name} in {rule['alert']}"
