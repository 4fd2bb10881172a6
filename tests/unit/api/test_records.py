"""Records over HTTP: what the file says of each route, and who may read a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.api.asgi_client import USER_MESSAGE, application, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words, until

from edgellm.api.keys import ApiKey
from edgellm.api.settings import ApiSettings
from edgellm.serving.record_file import RecordFileSettings
from edgellm.serving.records import RecordSettings

KEYS = {"alice": [("x-api-key", "a-long-key-of-alice")], "bob": [("x-api-key", "a-long-key-of-bob")]}
SETTINGS = ApiSettings(api_keys=tuple(ApiKey.of(name, headers[0][1]) for name, headers in KEYS.items()))
MESSAGES = [USER_MESSAGE]


def records_to(path: Path) -> RecordSettings:
    return RecordSettings(RecordFileSettings(path))


def with_id(name: str, client: str = "alice") -> list[tuple[str, str]]:
    return [*KEYS[client], ("x-request-id", name)]


def lines_of(path: Path) -> dict[str, dict[str, Any]]:
    return {line["id"]: line for line in map(json.loads, path.read_text().splitlines())}


def test_a_record_is_for_whoever_sent_the_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("hi"))
        async with application(lane, settings=SETTINGS, records=records_to(tmp_path / "r")) as (client, engine):
            assert (await client.chat(with_id("mine"), metadata={"job": "7"})).status == 200
            await until(lambda: not engine.running_requests)
            record = (await client.get("/v1/records/mine", headers=KEYS["alice"])).json
            assert (record["id"], record["client"], record["outcome"]) == ("mine", "alice", "success")
            assert (record["route"], record["metadata"]) == ("/v1/chat/completions", {"job": "7"})
            others = await client.get("/v1/records/mine", headers=KEYS["bob"])
            unknown = await client.get("/v1/records/never", headers=KEYS["bob"])
            assert (others.status, others.error) == (unknown.status, unknown.error)
            assert (others.status, others.error["code"]) == (404, "not_found")
            assert (await client.get("/v1/records/mine")).status == 401
            client.app.state.keys.replace((ApiKey.of("alice", "another-key-of-alice"),))
            again = await client.get("/v1/records/mine", headers=[("x-api-key", "another-key-of-alice")])
            assert again.status == 404

    run(scenario())


def test_a_server_without_records_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("hi"))) as (client, _):
            answer = await client.get("/v1/records/mine")
            assert (answer.status, answer.error["code"]) == (404, "not_found")
            assert "keeps no records" in answer.error["message"]

    run(scenario())


def test_what_is_refused_before_it_reaches_a_model_is_recorded_and_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "records"

    async def scenario() -> None:
        settings = ApiSettings(api_keys=SETTINGS.api_keys, concurrent_requests=1)
        lane = ScriptedLane()
        async with application(lane, settings=settings, records=records_to(path)) as (client, engine):
            await client.chat(with_id("unknown-field"), colour="red")
            await client.chat(with_id("unknown-model"), model="nobody")
            await client.post("/v1/messages", b"{", with_id("no-json"))
            await client.post("/v1/messages/count_tokens", b"{", with_id("counts-nothing"))
            await client.post("/v1/completions", b"x" * 9_000_000, with_id("too-large"))
            running = client.start_chat(with_id("running"))
            await until(lambda: len(lane.generations) == 1)
            await client.chat(with_id("two-at-a-time"))
            await client.chat([("x-api-key", "wrong"), ("x-request-id", "no-key")])
            lane.generations[0].finish()
            await running.done()
            outcomes = [
                sample
                for family in engine.counters.registry.collect()
                for sample in family.samples
                if sample.name == "edgellm_requests_total" and sample.value
            ]
            assert sum(sample.value for sample in outcomes) == 6

    run(scenario())
    assert {name: (line["route"], line["outcome"], line["error"]) for name, line in lines_of(path).items()} == {
        "unknown-field": ("/v1/chat/completions", "refused", "unknown_parameter"),
        "unknown-model": ("/v1/chat/completions", "refused", "model_not_found"),
        "no-json": ("/v1/messages", "refused", "invalid_value"),
        "too-large": ("/v1/completions", "refused", "request_too_large"),
        "running": ("/v1/chat/completions", "success", None),
        "two-at-a-time": ("/v1/chat/completions", "saturated", "rate_limited"),
    }


def test_the_user_of_an_anthropic_request_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "records"

    async def scenario() -> None:
        async with application(ScriptedLane(say_words("hi")), records=records_to(path)) as (client, _):
            for name, metadata in (("named", {"user_id": "u"}), ("unnamed", {"user_id": None}), ("none", None)):
                body = {"model": "tiny", "max_tokens": 5, "messages": MESSAGES, "metadata": metadata}
                assert (await client.post("/v1/messages", body, [("x-request-id", name)])).status == 200

    run(scenario())
    kept = {name: line.get("metadata") for name, line in lines_of(path).items()}
    assert kept == {"named": {"user_id": "u"}, "unnamed": None, "none": None}
