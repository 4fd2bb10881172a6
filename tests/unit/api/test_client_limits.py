"""What one client may ask: a rate with a whole minute's burst, a number at the same time, and honest waits."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tests.unit.api.asgi_client import AsgiClient, application, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words, until

from edgellm.api import limits
from edgellm.api.client_limits import ClientLimits
from edgellm.api.keys import ApiKey
from edgellm.api.settings import ApiSettings
from edgellm.errors import RateLimitedError


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def ask(client_limits: ClientLimits, client: str = "alice") -> None:
    with client_limits.request(client):
        pass


def test_a_minute_of_requests_may_come_at_once_and_waiting_as_long_as_told_is_enough() -> None:
    clock = Clock()
    client_limits = ClientLimits(6, None, clock)
    for _ in range(6):
        ask(client_limits)
    with pytest.raises(RateLimitedError, match="6 requests a minute") as refusal:
        ask(client_limits)
    assert refusal.value.retry_after_seconds == pytest.approx(10)
    ask(client_limits, "bob")
    clock.seconds += refusal.value.retry_after_seconds - 0.01
    with pytest.raises(RateLimitedError):
        ask(client_limits)
    clock.seconds += 0.01
    ask(client_limits)
    clock.seconds += 600
    for _ in range(6):
        ask(client_limits)
    with pytest.raises(RateLimitedError):
        ask(client_limits)


def test_a_refused_request_costs_nothing() -> None:
    clock = Clock()
    client_limits = ClientLimits(1, None, clock)
    ask(client_limits)
    for _ in range(100):
        with pytest.raises(RateLimitedError):
            ask(client_limits)
    clock.seconds += 60
    ask(client_limits)


def fail_after(seconds: float, client_limits: ClientLimits, clock: Clock) -> None:
    with client_limits.request("alice"):
        clock.seconds += seconds
        raise ValueError("a route failed")


def test_what_runs_at_the_same_time_is_counted_to_its_end_however_it_ends() -> None:
    clock = Clock()
    client_limits = ClientLimits(None, 2, clock)
    with pytest.raises(ValueError, match="a route failed"):
        fail_after(8, client_limits, clock)
    with ExitStack() as running:
        running.enter_context(client_limits.request("alice"))
        clock.seconds += 3
        running.enter_context(client_limits.request("alice"))
        with pytest.raises(RateLimitedError, match="2 requests at the same time") as refusal:
            ask(client_limits)
        assert refusal.value.retry_after_seconds == pytest.approx(5)  # the elder of them, by what the last one took
        ask(client_limits, "bob")
    ask(client_limits)


def test_what_is_remembered_of_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENTS_REMEMBERED_MAX", 3)
    client_limits = ClientLimits(1, 1)
    for number in range(10):
        ask(client_limits, f"client {number}")
    assert len(client_limits._whole_again_seconds) == 3
    assert client_limits._running == {}
    with pytest.raises(RateLimitedError):
        ask(client_limits, "client 9")


KEYS = (ApiKey.of("alice", "the-key-of-alice"), ApiKey.of("bob", "the-key-of-bob"))
ALICE = [("x-api-key", "the-key-of-alice")]
BOB = [("x-api-key", "the-key-of-bob")]


def test_a_client_over_its_rate_is_told_when_and_others_are_served() -> None:
    async def scenario() -> None:
        settings = ApiSettings(api_keys=KEYS, requests_per_minute=2)
        async with application(ScriptedLane(say_words("a")), settings=settings) as (client, _):
            for _ in range(2):
                assert (await client.chat(ALICE)).status == 200
            refused = await client.chat(ALICE)
            assert (refused.status, refused.error["code"]) == (429, "rate_limited")
            assert refused.error["type"] == "rate_limit_error"
            assert 1 <= int(refused.header("retry-after") or 0) <= 30
            assert (await client.chat(BOB)).status == 200
            assert (await client.get("/v1/models", headers=ALICE)).status == 200

    run(scenario())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_with_too_much_at_once_is_told_and_may_come_again_after(stream: bool) -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        settings = ApiSettings(api_keys=KEYS, concurrent_requests=1)
        async with application(lane, settings=settings) as (client, _):
            running = client.start_chat(ALICE, stream=stream)
            await until(lambda: bool(lane.generations))
            refused = await client.chat(ALICE)
            assert (refused.status, refused.error["code"]) == (429, "rate_limited")
            assert int(refused.header("retry-after") or 0) >= 1
            lane.generations[0].say("done")
            lane.generations[0].finish()
            assert (await running.done()).status == 200
            again = client.start_chat(ALICE)
            await until(lambda: len(lane.generations) == 2)
            again.leave()
            await again.done()
            await answers(client, lane)

    async def answers(client: AsgiClient, lane: ScriptedLane) -> None:
        """After a client that left, its place is free too."""
        third = client.start_chat(ALICE)
        await until(lambda: len(lane.generations) == 3)
        lane.generations[2].say("done")
        lane.generations[2].finish()
        assert (await third.done()).status == 200

    run(scenario())


def test_without_keys_a_client_is_its_address() -> None:
    async def scenario() -> None:
        settings = ApiSettings(requests_per_minute=1)
        async with application(ScriptedLane(say_words("a")), settings=settings) as (client, _):
            assert (await client.chat()).status == 200
            assert (await client.chat([("authorization", "Bearer anything")])).status == 429

    run(scenario())
