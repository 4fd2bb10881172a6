"""What is not generation: models, health, metrics, the OpenAPI document, the status page."""

from __future__ import annotations

import json
import re

from tests.unit.api.asgi_client import application, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words, spec_of, until

from edgellm.api.keys import ApiKey
from edgellm.api.settings import ApiSettings


def test_models_say_what_they_can() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(parameters=frozenset({"min_p"}), guided_decoding=())
        specs = [spec_of(lane, name="org/name", sampling={"temperature": 0.2})]
        async with application(specs=specs) as (client, _):
            listed = (await client.get("/v1/models")).json
            assert listed["object"] == "list"
            [model] = listed["data"]
            assert (model["id"], model["object"]) == ("org/name", "model")
            about = model["edgellm"]
            assert (about["state"], about["runtime"], about["streaming"]) == ("ready", "native", "incremental")
            assert (about["context_length"], about["max_input_len"], about["slots"]) == (200, 100, 2)
            assert about["sampling_defaults"]["temperature"] == 0.2
            assert about["input_modalities"] == ["text"]
            assert "repetition_penalty" in about["unsupported_parameters"]
            assert "guided_decoding" in about["unsupported_parameters"]
            assert "min_p" not in about["unsupported_parameters"]
            assert (await client.get("/v1/models/org/name")).json == model
            missing = await client.get("/v1/models/org")
            assert (missing.status, missing.error["code"]) == (404, "model_not_found")

    run(scenario())


def test_health_counts_what_runs_and_waits() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with application(lane) as (client, engine):
            exchanges = [client.start_chat(), client.start_chat()]
            await until(lambda: engine.model("tiny").admission.waiting == 1)
            health = (await client.get("/health")).json
            assert health["status"] == "ready"
            assert health["running_requests"] == 2
            model = health["models"]["tiny"]
            assert (model["slots"], model["running"], model["waiting"]) == (1, 1, 1)
            assert model["lanes"][0]["scheduling"] == {"completed": 3}
            for exchange in exchanges:
                exchange.leave()
                await exchange.done()

    run(scenario())


def test_metrics_are_prometheus_text() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            await client.chat()
            await client.get("/nothing")
            answer = await client.get("/metrics")
            assert (answer.header("content-type") or "").startswith("text/plain; version=")
            lines = answer.body.decode().splitlines()
            for line in (
                'edgellm_requests_total{model="tiny",outcome="success"} 1.0',
                'edgellm_http_responses_total{route="/v1/chat/completions",status="200"} 1.0',
                'edgellm_http_responses_total{route="none",status="404"} 1.0',
                'edgellm_running_sequences{model="tiny"} 0.0',
                'edgellm_lane_context_cache{counter="hit_sequences",lane="0",model="tiny"} 1.0',
            ):
                assert line in lines

    run(scenario())


def test_the_openapi_document_describes_what_is_served() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane()) as (client, _):
            document = (await client.get("/openapi.json")).json
            chat = document["paths"]["/v1/chat/completions"]["post"]
            reference = chat["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            fields = document["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
            assert {"messages", "temperature", "stream", "logit_bias", "guided_decoding"} <= set(fields)
            assert set(chat["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
            assert chat["security"]
            assert "security" not in document["paths"]["/health/live"]["get"]
            assert "/v1/models/{model_id}" in document["paths"]
            schemas = document["components"]["schemas"]
            references = [part.partition('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]]
            assert set(references) <= set(schemas)
            keywords = set(re.findall(r'"(ge|gt|le|lt|min_length|max_length)": ', json.dumps(document)))
            assert not keywords, "bounds under names that JSON Schema does not know"

    run(scenario())


def test_the_docs_page_shows_the_document_and_loads_nothing_from_elsewhere() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane()) as (client, _):
            document = (await client.get("/openapi.json")).json
            answer = await client.get("/docs")
            page = answer.body.decode()
            assert answer.status == 200
            assert "default-src 'none'" in (answer.header("content-security-policy") or "")
            for path, methods in document["paths"].items():
                for method in methods:
                    assert f"<code>{method.upper()} {path}</code>" in page
            for name, schema in document["components"]["schemas"].items():
                assert f'id="{name}"' in page
                assert all(f"<code>{field}</code>" in page for field in schema.get("properties", {}))
            links = [part.partition('"')[0] for part in page.split('href="')[1:]]
            assert set(links) <= {"/openapi.json", *(f"#{name}" for name in document["components"]["schemas"])}
            assert "src=" not in page
            assert "<script" not in page

    run(scenario())


def test_the_status_page_names_models_only_where_there_are_no_keys() -> None:
    async def scenario() -> None:
        for keys, named in (((), True), ((ApiKey.of("alice", "a-long-enough-key"),), False)):
            settings = ApiSettings(api_keys=keys, base_url="http://board.local:8000/v1")
            async with application(specs=[spec_of(ScriptedLane(), name="<b>")], settings=settings) as (client, _):
                answer = await client.get("/")
                page = answer.body.decode()
                assert answer.header("content-type") == "text/html; charset=utf-8"
                assert "default-src 'none'" in (answer.header("content-security-policy") or "")
                assert "http://board.local:8000/v1" in page
                assert "edgellm is ready" in page
                assert ("&lt;b&gt;" in page) is named
                assert "<b>" not in page

    run(scenario())
