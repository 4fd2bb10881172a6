"""Priority over HTTP: a key's class, what a request may ask for, and who is turned away when the queue is full."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.api.asgi_client import Answer, application, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words, until

from edgellm.api.keys import ApiKey
from edgellm.api.settings import ApiSettings
from edgellm.serving.priority import Priority

KEYS = {priority: [("x-api-key", f"a-long-key-of-{priority.value}")] for priority in Priority}
SETTINGS = ApiSettings(
    api_keys=tuple(ApiKey.of(priority.value, headers[0][1], priority) for priority, headers in KEYS.items())
)


def test_a_request_waits_in_the_class_of_its_key_or_a_lower_one_it_asks_for() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with application(lane, settings=SETTINGS) as (client, engine):
            gate = engine.model("tiny").admission
            exchanges = [client.start_chat(KEYS[Priority.HIGH])]
            await until(lambda: len(lane.generations) == 1)
            waiting: list[tuple[Priority, dict[str, Any]]] = [
                (Priority.LOW, {}),
                (Priority.HIGH, {"priority": "low", "user": "second"}),
                (Priority.NORMAL, {"priority": 0}),
                (Priority.NORMAL, {"priority": None}),
                (Priority.HIGH, {"priority": "high"}),
            ]
            for count, (key, fields) in enumerate(waiting, start=1):
                exchanges.append(client.start_chat(KEYS[key], seed=count, **fields))
                await until(lambda count=count: gate.waiting == count)  # type: ignore[misc]
            for ended in range(len(waiting)):
                lane.generations[ended].finish()
                await until(lambda ended=ended: len(lane.generations) == ended + 2)  # type: ignore[misc]
            assert [generation.request.params.seed for generation in lane.generations[1:]] == [5, 3, 4, 1, 2]
            lane.generations[-1].finish()
            assert [(await exchange.done()).status for exchange in exchanges] == [200] * 6

    run(scenario())


@pytest.mark.parametrize(
    ("key", "asked"),
    [(Priority.NORMAL, "high"), (Priority.LOW, "normal"), (Priority.HIGH, "urgent"), (Priority.HIGH, 1)],
)
def test_more_than_the_key_allows_is_refused(key: Priority, asked: object) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("hi")), settings=SETTINGS) as (client, _):
            answer = await client.chat(KEYS[key], priority=asked)
            assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_value", "priority")

    run(scenario())


def test_without_keys_a_request_may_ask_for_any_class() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("hi"))) as (client, _):
            for asked in ("high", "normal", "low", 0, None):
                assert (await client.complete(priority=asked)).status == 200

    run(scenario())


def test_a_full_queue_turns_the_lowest_away_with_a_time_to_come_back() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with application(lane, settings=SETTINGS, max_queued_requests=1) as (client, engine):
            running = client.start_chat(KEYS[Priority.LOW])
            await until(lambda: len(lane.generations) == 1)
            low = client.start_chat(KEYS[Priority.LOW])
            await until(lambda: engine.model("tiny").admission.waiting == 1)
            high = client.start_chat(KEYS[Priority.HIGH])
            refused: Answer = await low.done()
            assert (refused.status, refused.error["code"]) == (429, "server_busy")
            assert int(refused.header("retry-after") or 0) >= 1
            for index in range(2):
                await until(lambda index=index: len(lane.generations) == index + 1)  # type: ignore[misc]
                lane.generations[index].finish()
            assert [(await each.done()).status for each in (running, high)] == [200, 200]

    run(scenario())


def test_another_class_for_the_same_key_ends_nothing() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane, settings=SETTINGS) as (client, _):
            running = client.start_chat(KEYS[Priority.LOW])
            await until(lambda: len(lane.generations) == 1)
            client.app.state.keys.replace([ApiKey.of("low", KEYS[Priority.LOW][0][1], Priority.HIGH)])
            assert not lane.generations[0].cancelled
            lane.generations[0].finish()
            assert (await running.done()).status == 200
            assert (await client.chat(KEYS[Priority.NORMAL])).status == 401

    run(scenario())
