"""Clients that leave, queue, wait, or come at a bad moment."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.api.asgi_client import AsgiClient, application, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words, settle, until

from edgellm.api.app import create_app
from edgellm.api.settings import ApiSettings
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model_spec import LoadProgress, ModelSpec, OpenedModel, ReportProgress


def idle(engine: EngineClient) -> bool:
    gate = engine.model("tiny").admission
    return gate.running == gate.waiting == engine.running_requests == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_slot(stream: bool) -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane) as (client, engine):
            exchange = client.start_chat(stream=stream)
            await until(lambda: bool(lane.generations))
            lane.generations[0].say("a")
            await settle()
            exchange.leave()
            answer = await exchange.done()
            await until(lambda: idle(engine))
            assert lane.generations[0].cancelled
            assert not answer.complete
            assert b"error" not in answer.body

    run(scenario())


@pytest.mark.parametrize("stream", [False, True])
def test_a_queued_client_that_leaves_never_starts(stream: bool) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with application(lane) as (client, engine):
            running = client.start_chat()
            await until(lambda: bool(lane.generations))
            queued = client.start_chat(stream=stream)
            await until(lambda: engine.model("tiny").admission.waiting == 1)
            assert queued.answer.status == 0  # while queued nothing is sent
            queued.leave()
            await queued.done()
            assert engine.model("tiny").admission.waiting == 0
            lane.generations[0].finish()
            await running.done()
            await until(lambda: idle(engine))
            assert len(lane.generations) == 1

    run(scenario())


def test_a_full_queue_is_a_429_with_a_time_to_come_back() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with application(lane, max_queued_requests=0) as (client, _):
            running = client.start_chat()
            await until(lambda: bool(lane.generations))
            for stream in (False, True):
                answer = await client.chat(stream=stream)
                assert (answer.status, answer.error["code"]) == (429, "server_busy")
                assert int(answer.header("retry-after") or "") >= 1
            lane.generations[0].finish()
            assert (await running.done()).status == 200

    run(scenario())


def test_a_queue_timeout_is_a_429_also_for_a_stream() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with application(lane, queue_timeout_seconds=0.01) as (client, _):
            client.start_chat()
            await until(lambda: bool(lane.generations))
            answer = await client.chat(stream=True)
            assert (answer.status, answer.error["code"]) == (429, "server_busy")
            assert answer.header("retry-after")

    run(scenario())


def test_a_request_over_its_time_is_a_504_or_the_end_of_its_stream() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(), request_timeout_seconds=0.01) as (client, _):
            whole = await client.chat()
            assert (whole.status, whole.error["code"]) == (504, "request_timeout")
            streamed = await client.chat(stream=True)
            assert streamed.status == 200
            assert [event["error"]["code"] for event in streamed.events] == ["request_timeout"]

    run(scenario())


def test_the_same_id_twice_at_a_time_is_a_409() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        same = [("x-request-id", "same")]
        async with application(lane) as (client, _):
            running = client.start_chat(headers=same)
            await until(lambda: bool(lane.generations))
            answer = await client.chat(headers=same)
            assert (answer.status, answer.error["code"]) == (409, "duplicate_request_id")
            lane.generations[0].finish()
            await running.done()
            lane.script = say_words("a")
            assert (await client.chat(headers=same)).status == 200

    run(scenario())


def test_while_it_shuts_down_requests_are_sent_away() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane) as (client, engine):
            running = client.start_chat(stream=True)
            await until(lambda: bool(lane.generations))
            draining = asyncio.create_task(engine.drain(30))
            await settle()
            answer = await client.chat()
            assert (answer.status, answer.error["code"]) == (503, "shutting_down")
            assert answer.header("retry-after")
            ready = await client.get("/health/ready")
            assert (ready.status, ready.json["status"]) == (503, "shutting_down")
            assert (await client.get("/health/live")).status == 200
            lane.generations[0].say("end")
            lane.generations[0].finish()
            assert (await running.done()).events[-1] == "[DONE]"
            await draining

    run(scenario())


def test_a_stream_without_a_token_is_kept_alive_by_comments() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane, settings=ApiSettings(heartbeat_seconds=0.01)) as (client, _):
            exchange = client.start_chat(stream=True)
            await until(lambda: len(exchange.answer.pieces) >= 2)
            assert all(piece.startswith(b": ") and piece.endswith(b"\n\n") for piece in exchange.answer.pieces)
            lane.generations[0].say("a")
            await until(lambda: b"data:" in exchange.answer.body)
            pieces = len(exchange.answer.pieces)
            await asyncio.sleep(0.05)
            assert len(exchange.answer.pieces) == pieces
            lane.generations[0].finish()
            assert (await exchange.done()).events[-1] == "[DONE]"

    run(scenario())


def test_a_slow_reader_gets_fewer_and_larger_chunks_and_all_of_the_text() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane) as (client, _):
            exchange = client.start_chat(stream=True)
            await until(lambda: bool(lane.generations))
            lane.generations[0].say("0 ")
            await until(lambda: len(exchange.answer.pieces) == 1)
            exchange.stop_reading()
            for number in range(1, 50):
                lane.generations[0].say(f"{number} ")
                await settle(3)
            exchange.read_on()
            lane.generations[0].finish()
            answer = await exchange.done()
            content = [event["choices"][0]["delta"].get("content", "") for event in answer.events[:-1]]
            assert "".join(content) == "".join(f"{number} " for number in range(50))
            assert len(answer.pieces) < 10

    run(scenario())


def test_while_a_model_loads_its_stage_is_seen_and_requests_are_told_to_come_back() -> None:
    async def scenario() -> None:
        go_on = asyncio.Event()
        lane = ScriptedLane(say_words("a"))

        async def slowly(report: ReportProgress) -> OpenedModel:
            report(LoadProgress("lowering", 0.25))
            await go_on.wait()
            return OpenedModel([lane])

        engine = EngineClient([ModelSpec("tiny", slowly, created_unix_seconds=1234)])
        client = AsgiClient(create_app(engine))
        engine.start()
        await settle()
        answer = await client.chat()
        assert (answer.status, answer.error["code"]) == (503, "model_loading")
        assert answer.header("retry-after")
        ready = await client.get("/health/ready")
        assert ready.status == 503
        assert ready.json["models"]["tiny"] == {"state": "loading", "stage": "lowering", "progress": 0.25}
        [model] = (await client.get("/v1/models")).json["data"]
        assert (model["id"], model["created"], model["edgellm"]["state"]) == ("tiny", 1234, "loading")
        assert "lowering" in (await client.get("/")).body.decode()
        go_on.set()
        await engine.opened()
        assert (await client.get("/health/ready")).json == {"status": "ready"}
        assert (await client.chat()).status == 200
        await engine.close()
        assert (await client.chat()).status == 503

    run(scenario())


def test_a_model_that_failed_to_load_is_unavailable() -> None:
    async def scenario() -> None:
        async def fails(report: ReportProgress) -> OpenedModel:
            raise ValueError("/secret/path")

        async with application(specs=[ModelSpec("tiny", fails)]) as (client, _):
            answer = await client.chat()
            assert (answer.status, answer.error["code"]) == (503, "model_unavailable")
            assert answer.header("retry-after") is None, "nothing will load it again"
            health = await client.get("/health")
            assert health.json["models"]["tiny"]["state"] == "unavailable"
            assert b"secret" not in health.body
            ready = await client.get("/health/ready")
            assert (ready.status, ready.header("retry-after")) == (503, None)

    run(scenario())
