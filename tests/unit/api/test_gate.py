"""The gate: who and what gets through, and the shape of every refusal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.api.asgi_client import AsgiClient, application, run
from tests.unit.api.memory_connection import connect
from tests.unit.serving.scripted_lane import WARM_UP_PROMPT, ScriptedLane, say_words, settle, spec_of, until

from edgellm.api.app import create_app
from edgellm.api.error_mapping import HttpError
from edgellm.api.hosts import LOOK_UP_SECONDS, KnownHosts
from edgellm.api.keys import ApiKey
from edgellm.api.routes import ROUTES, Access, Body, routes_at
from edgellm.api.settings import ApiSettings
from edgellm.runtime.generation import GenerationRequest
from edgellm.serving.engine_client import EngineClient

KEY = "a-long-enough-key"
WITH_KEYS = ApiSettings(api_keys=(ApiKey.of("alice", KEY), ApiKey.of("bob", "another-long-key")))
EVERY_ROUTE = [(route.method, route.path.replace("{model_id:path}", "tiny"), route.access) for route in ROUTES]


def talking_lane() -> ScriptedLane:
    return ScriptedLane(say_words("a"))


def test_every_route_of_the_application_is_in_the_table() -> None:
    app = create_app(EngineClient([spec_of(ScriptedLane())]))
    served = {(method, route.path) for route in app.routes for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]
    assert served == {(route.method, route.path) for route in ROUTES}


@pytest.mark.parametrize(("method", "path", "access"), EVERY_ROUTE)
def test_every_route_keeps_its_auth_class(method: str, path: str, access: Access) -> None:
    async def scenario() -> None:
        async with application(talking_lane(), settings=WITH_KEYS) as (client, _):
            answer = await client.request(method, path)
            if access is Access.PUBLIC:
                assert answer.status == (415 if method == "POST" else 200)  # which comes after the keys
            else:
                assert (answer.status, answer.json["error"]["type"]) == (401, "authentication_error")
                assert answer.header("www-authenticate") == "Bearer"

    run(scenario())


@pytest.mark.parametrize("path", ["/v1/models/a\nb", "/v1/responses/a\nb"])
def test_a_line_break_in_a_path_leads_nowhere(path: str) -> None:
    async def scenario() -> None:
        async with application(talking_lane()) as (client, _):
            answer = await client.get(path)
            assert (answer.status, answer.error["code"]) == (404, "not_found")

    run(scenario())


@pytest.mark.parametrize("path", ["/nothing", "/v1/audio", "/docs/oauth2-redirect", "/v1", "/redoc"])
def test_what_is_not_in_the_table_is_denied_first_and_unknown_second(path: str) -> None:
    async def scenario() -> None:
        async with application(talking_lane(), settings=WITH_KEYS) as (client, _):
            assert (await client.get(path)).status == 401
            answer = await client.get(path, headers=[("authorization", f"Bearer {KEY}")])
            assert (answer.status, answer.error["code"]) == (404, "not_found")

    run(scenario())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("authorization", f"Bearer {KEY}")], 200),
        ([("authorization", f"bearer  {KEY}")], 200),
        ([("x-api-key", KEY)], 200),
        ([("x-api-key", "wrong"), ("authorization", f"Bearer {KEY}")], 200),
        ([("authorization", KEY)], 401),
        ([("authorization", f"Basic {KEY}")], 401),
        ([("authorization", "Bearer ")], 401),
        ([("authorization", "Bearer wröng")], 401),
        ([("x-api-key", "\xff\xfe")], 401),
        ([("authorization", f"Bearer {KEY}"), ("authorization", f"Bearer {KEY}")], 200),
        ([("authorization", f"Bearer {KEY}"), ("authorization", "Bearer wrong")], 401),
        ([("x-api-key", "wrong"), ("x-api-key", KEY)], 401),
        ([("x-api-key", "")], 401),
        ([], 401),
    ],
    ids=str,
)
def test_keys_are_compared_byte_by_byte(headers: list[tuple[str, str]], status: int) -> None:
    async def scenario() -> None:
        async with application(talking_lane(), settings=WITH_KEYS) as (client, _):
            assert (await client.get("/v1/models", headers=headers)).status == status

    run(scenario())


def test_keys_can_be_replaced_while_it_runs() -> None:
    async def scenario() -> None:
        engine = EngineClient([spec_of(ScriptedLane())])
        app = create_app(engine, WITH_KEYS)
        client = AsgiClient(app)
        headers = [("x-api-key", KEY)]
        assert (await client.get("/v1/models", headers=headers)).status == 200
        app.state.keys.replace((ApiKey.of("carol", "a-new-key"),))
        assert (await client.get("/v1/models", headers=headers)).status == 401

    run(scenario())


def test_revoking_the_last_key_closes_the_server() -> None:
    async def scenario() -> None:
        engine = EngineClient([spec_of(ScriptedLane())])
        app = create_app(engine, ApiSettings(api_keys=(ApiKey.of("alice", KEY),)))
        client = AsgiClient(app)
        app.state.keys.replace(())
        for headers in ([("x-api-key", KEY)], [], [("authorization", "Bearer ")]):
            assert (await client.get("/v1/models", headers=headers)).status == 401
        assert "tiny" not in (await client.get("/")).body.decode()

    run(scenario())


@pytest.mark.parametrize("change", [(), (ApiKey.of("alice", "a-new-long-key"),)], ids=["revoked", "changed"])
@pytest.mark.parametrize("stream", [True, False])
def test_what_runs_and_waits_of_a_revoked_key_ends(change: tuple[ApiKey, ...], stream: bool) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=2)
        async with application(lane, settings=WITH_KEYS) as (client, engine):
            alice, bob = [("x-api-key", KEY)], [("x-api-key", "another-long-key")]
            running = client.start_chat(alice, stream=stream)
            others = client.start_chat(bob)
            await until(lambda: len(lane.generations) == 2)
            lane.generations[0].say("be")
            waiting = client.start_chat(alice)
            await until(lambda: engine.model("tiny").admission.waiting == 1)
            client.app.state.keys.replace((*change, WITH_KEYS.api_keys[1]))
            await until(lambda: lane.generations[0].cancelled)
            lane.generations[0].let_go()
            ended = await running.done()
            if stream:
                assert ended.status == 200
                assert ended.events[-1]["error"]["code"] == "invalid_api_key"
            else:
                assert (ended.status, ended.error["code"]) == (401, "invalid_api_key")
            turned_away = await waiting.done()
            assert (turned_away.status, turned_away.error["code"]) == (401, "invalid_api_key")
            lane.generations[1].say("ok")
            lane.generations[1].finish()
            assert (await others.done()).status == 200
            assert len(lane.generations) == 2
            assert (await client.chat(alice)).status == 401

    run(scenario())


def test_a_prompt_that_is_being_read_when_its_key_is_revoked_never_answers() -> None:
    async def scenario() -> None:
        lane = SlowToEncode(say_words("a"))
        async with application(lane, settings=WITH_KEYS) as (client, _):
            asking = client.start_chat([("x-api-key", KEY)])
            await until(lambda: lane.encoding)
            client.app.state.keys.replace(WITH_KEYS.api_keys[1:])
            lane.gate.set()
            answer = await asking.done()
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")

    run(scenario())


class SlowToEncode(ScriptedLane):
    encoding = False

    async def encode(self, request: GenerationRequest) -> GenerationRequest:
        if getattr(request.prompt, "text", None) != WARM_UP_PROMPT:
            self.gate, self.encoding = asyncio.Event(), True
            await self.gate.wait()
        return await super().encode(request)


def test_prefixes_stay_apart_once_there_have_been_several_keys() -> None:
    async def scenario() -> None:
        lane = talking_lane()
        async with application(lane, settings=ApiSettings(api_keys=WITH_KEYS.api_keys[:1])) as (client, _):
            keys = client.app.state.keys
            for held, domain in ((1, ""), (2, "alice"), (1, "alice")):
                keys.replace(WITH_KEYS.api_keys[:held])
                await client.chat(headers=[("x-api-key", KEY)])
                assert lane.generations[-1].request.cache_domain == domain

    run(scenario())


def test_prefixes_are_shared_within_one_client_only_once_there_are_several_keys() -> None:
    async def scenario() -> None:
        for settings, domain in ((WITH_KEYS, "alice"), (ApiSettings(api_keys=WITH_KEYS.api_keys[:1]), "")):
            lane = talking_lane()
            async with application(lane, settings=settings) as (client, _):
                await client.chat(headers=[("x-api-key", KEY)])
                assert lane.generations[0].request.cache_domain == domain

    run(scenario())


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("localhost.:8000", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:8000", 200),
        ("board.local", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("evillocal", 403),
        ("", 403),
        (None, 400),
    ],
)
def test_only_known_host_names_get_through(host: str | None, status: int) -> None:
    async def scenario() -> None:
        settings = ApiSettings(allowed_hosts=("localhost", "127.0.0.1", "::1", ".local"))
        async with application(talking_lane(), settings=settings) as (client, _):
            assert (await client.get("/v1/models", host=host)).status == status
            assert (await client.get("/health/live", host=host)).status == 200

    run(scenario())


def test_names_that_the_machine_got_since_are_looked_up_when_they_come() -> None:
    now = ["old.example"]
    looked_up: list[float] = []
    time_seconds = 100.0

    def look_up() -> list[str]:
        looked_up.append(time_seconds)
        return now

    known = KnownHosts(ApiSettings(allowed_hosts=("old.example",), look_up_hosts=look_up), lambda: time_seconds)
    known.check([b"old.example"])
    assert looked_up == []
    with pytest.raises(HttpError, match="not known by this Host name"):
        known.check([b"new.example:8000"])
    now.append("new.example")
    time_seconds += LOOK_UP_SECONDS / 2
    with pytest.raises(HttpError):  # whoever asks much is not looked up much
        known.check([b"new.example"])
    time_seconds += LOOK_UP_SECONDS
    known.check([b"new.example:8000"])
    known.check([b"new.example"])
    assert looked_up == [100.0, 100.0 + 1.5 * LOOK_UP_SECONDS]
    known.change(ApiSettings(allowed_hosts=("third.example",)))
    with pytest.raises(HttpError):
        known.check([b"new.example"])


def test_a_new_name_gets_through_without_a_reload() -> None:
    names = ["localhost"]

    async def scenario() -> None:
        settings = ApiSettings(allowed_hosts=("localhost",), look_up_hosts=lambda: names)
        async with application(talking_lane(), settings=settings) as (client, _):
            assert (await client.get("/v1/models", host="localhost")).status == 200
            names.append("third")
            assert (await client.get("/v1/models", host="third:8000")).status == 200
            assert (await client.get("/v1/models", host="evil.example")).status == 403

    run(scenario())


@pytest.mark.parametrize(
    ("origin", "allowed", "status"),
    [
        ("https://evil.example", (), 403),
        ("null", (), 403),
        ("http://localhost:8000", (), 200),
        ("https://app.example", ("https://app.example",), 200),
        ("https://APP.example", ("https://app.example",), 200),
        ("https://evil.example", ("https://app.example",), 403),
        ("https://anything.example", ("*",), 200),
    ],
)
def test_pages_of_other_sites_need_the_operators_word(origin: str, allowed: tuple[str, ...], status: int) -> None:
    async def scenario() -> None:
        async with application(talking_lane(), settings=ApiSettings(cors_origins=allowed)) as (client, _):
            answer = await client.chat(headers=[("origin", origin)])
            assert answer.status == status
            expected = origin if status == 200 and allowed else None
            assert answer.header("access-control-allow-origin") == expected

    run(scenario())


def test_a_preflight_needs_no_key_and_a_401_can_be_read_by_the_page() -> None:
    async def scenario() -> None:
        settings = ApiSettings(api_keys=WITH_KEYS.api_keys, cors_origins=("https://app.example",))
        origin = ("origin", "https://app.example")
        async with application(talking_lane(), settings=settings) as (client, _):
            asks = [("access-control-request-method", "POST"), ("access-control-request-headers", "authorization")]
            answer = await client.request("OPTIONS", "/v1/chat/completions", headers=[origin, *asks])
            assert (answer.status, answer.body) == (204, b"")
            assert answer.header("access-control-allow-origin") == "https://app.example"
            assert answer.header("access-control-allow-headers") == "authorization"
            assert answer.header("access-control-allow-methods") == "OPTIONS, POST"
            assert answer.header("vary") == "Origin"
            refused = await client.chat(headers=[origin])
            assert refused.status == 401
            assert refused.header("access-control-allow-origin") == "https://app.example"
            foreign = await client.request("OPTIONS", "/v1/models", headers=[("origin", "https://evil"), *asks])
            assert foreign.status == 403

    run(scenario())


@pytest.mark.parametrize(("method", "path", "allow"), [
    ("GET", "/v1/chat/completions", "OPTIONS, POST"),
    ("DELETE", "/v1/models/tiny", "GET, HEAD, OPTIONS"),
    ("POST", "/health", "GET, HEAD, OPTIONS"),
])  # fmt: skip
def test_a_wrong_method_says_which_are_right(method: str, path: str, allow: str) -> None:
    async def scenario() -> None:
        async with application(talking_lane()) as (client, _):
            answer = await client.request(method, path)
            assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
            assert answer.header("allow") == allow

    run(scenario())


@pytest.mark.parametrize("further", [[], [("origin", "http://localhost:8000")]], ids=str)
def test_options_names_the_methods_of_a_path_without_a_key(further: list[tuple[str, str]]) -> None:
    async def scenario() -> None:
        async with application(talking_lane(), settings=WITH_KEYS) as (client, _):
            for path, allow in (("/health", "GET, HEAD, OPTIONS"), ("/v1/chat/completions", "OPTIONS, POST")):
                answer = await client.request("OPTIONS", path, headers=further)
                assert (answer.status, answer.body, answer.header("allow")) == (204, b"", allow)
                assert answer.header("access-control-allow-methods") is None
            assert (await client.request("OPTIONS", "/nothing")).status == 401
            assert (await client.request("OPTIONS", "/v1/models", host="evil.example")).status == 403

    run(scenario())


def test_head_answers_as_get_without_a_body() -> None:
    async def scenario() -> None:
        async with application(talking_lane()) as (client, _):
            for path in ("/v1/models", "/v1/models/tiny", "/health/ready", "/"):
                got, headed = await client.get(path), await client.request("HEAD", path)
                assert (headed.status, headed.body) == (200, b"")
                assert headed.header("content-length") == got.header("content-length")
            assert (await client.request("HEAD", "/nothing")).status == 404

    run(scenario())


def test_doubled_slashes_are_one() -> None:
    async def scenario() -> None:
        async with application(talking_lane()) as (client, _):
            for path in ("/v1//models", "//v1/models", "/v1///models//tiny"):
                assert (await client.get(path)).status == 200

    run(scenario())


@pytest.mark.parametrize(
    ("ids", "status"),
    [
        (["a.b_c:d-9"], 200),
        (["x" * 128], 200),
        (["x" * 129], 400),
        ([""], 400),
        (["has space"], 400),
        (["umläut"], 400),
        (["a", "a"], 400),
        ([], 200),
    ],
    ids=str,
)
def test_request_ids_are_kept_made_or_refused(ids: list[str], status: int) -> None:
    async def scenario() -> None:
        async with application(talking_lane()) as (client, _):
            answer = await client.chat(headers=[("x-request-id", value) for value in ids])
            assert answer.status == status
            answered = answer.header("x-request-id")
            if status == 200 and ids:
                assert answered == ids[0]
            else:
                assert answered
                assert answered not in ids
            if status == 200:
                assert answer.json["id"] == f"chatcmpl-{answered}"

    run(scenario())


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("content-type", "text/plain")],
        [("content-type", "application/x-www-form-urlencoded")],
        [("content-type", "application/json; charset=latin-1")],
        [("content-type", "application/json"), ("content-type", "application/json")],
        [("content-type", "application/json"), ("content-encoding", "gzip")],
    ],
    ids=str,
)
def test_bodies_that_are_not_plain_json_are_refused_unread(headers: list[tuple[str, str]]) -> None:
    async def scenario() -> None:
        async with application(talking_lane()) as (client, _):
            answer = await client.request("POST", "/v1/chat/completions", b"{}", headers=headers)
            assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")

    run(scenario())


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_json_in_utf_8_is_taken_however_it_is_spelt(kind: str) -> None:
    async def scenario() -> None:
        async with application(talking_lane()) as (client, _):
            body = b'{"messages":[{"role":"user","content":"hi"}]}'
            answer = await client.request("POST", "/v1/chat/completions", body, headers=[("content-type", kind)])
            assert answer.status == 200

    run(scenario())


def test_a_body_over_the_cap_is_refused_by_its_length_or_while_it_comes() -> None:
    async def scenario() -> None:
        settings = ApiSettings(body_bytes_max=1000)
        async with application(talking_lane(), settings=settings) as (client, _):
            json_kind = ("content-type", "application/json")
            told = client.start("POST", "/v1/completions", [b"x"], headers=[json_kind, ("content-length", "1001")])
            untold = client.start("POST", "/v1/completions", [b"x" * 400] * 5, headers=[json_kind])
            for exchange in (told, untold):
                answer = await exchange.done()
                assert (answer.status, answer.error["code"]) == (413, "request_too_large")
                assert answer.header("connection") == "close"
                assert answer.complete

    run(scenario())


def test_a_body_without_length_or_chunks_is_asked_for_one() -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n"

    async def scenario() -> None:
        async with application(ScriptedLane()) as (client, _):
            protocol, transport = connect(app=client.app)
            protocol.data_received(head)
            await until(lambda: b"\r\n\r\n{" in transport.written)
            assert (transport.status, transport.error_code) == (411, "length_required")
            transport.close()

    run(scenario())


def test_what_is_held_of_all_bodies_is_bounded() -> None:
    async def scenario() -> None:
        settings = ApiSettings(bodies_bytes_max=1000)
        json_kind = ("content-type", "application/json")
        async with application(talking_lane(), settings=settings) as (client, _):
            slow = client.start("POST", "/v1/completions", [], headers=[json_kind])
            slow.send_on(b"x" * 900)
            await settle()
            answer = await client.request("POST", "/v1/completions", b"x" * 200, headers=[json_kind])
            assert (answer.status, answer.error["code"]) == (429, "server_busy")
            slow.leave()
            await slow.done()
            assert (await client.chat()).status == 200

    run(scenario())


def test_a_body_that_never_ends_runs_into_its_deadline() -> None:
    async def scenario() -> None:
        settings = ApiSettings(body_deadline_seconds=0.01)
        async with application(talking_lane(), settings=settings) as (client, _):
            exchange = client.start("POST", "/v1/completions", [], headers=[("content-type", "application/json")])
            exchange.send_on(b"{")
            await until(lambda: bool(exchange.answer.pieces))
            assert exchange.answer.status == 408
            assert (await exchange.done()).complete  # though the client neither sends nor leaves

    run(scenario())


def test_an_unforeseen_failure_is_an_error_object_and_logs_no_text(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        lane = talking_lane()

        async def encode(request: Any) -> Any:
            raise ValueError(f"canary {request.prompt}")

        async with application(lane) as (client, _):
            lane.encode = encode  # type: ignore[method-assign]
            answer = await client.chat()
            assert (answer.status, answer.error["code"]) == (500, "internal_error")
            assert "canary" not in answer.body.decode()
            assert (await client.get("/health/live")).status == 200

    run(scenario())
    assert "ValueError" in caplog.text
    assert "canary" not in caplog.text
    assert "Say hi" not in caplog.text


def test_websockets_are_turned_away() -> None:
    async def scenario() -> None:
        app = create_app(EngineClient([spec_of(ScriptedLane())]))
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        await app({"type": "websocket", "path": "/v1/models", "headers": []}, receive, send)
        assert sent == [{"type": "websocket.close", "code": 1008}]

    run(scenario())


def test_patterns_take_whole_paths_only() -> None:
    assert [route.path for route in routes_at("/v1/models/org/name")] == ["/v1/models/{model_id:path}"]
    assert routes_at("/v1/models/") == []
    assert routes_at("/v1/modelsX") == []
    assert routes_at("/healthX") == []
    assert all(route.access is Access.KEY for route in ROUTES if route.path.startswith("/v1/"))
    assert all(route.body is not Body.NONE for route in ROUTES if route.method == "POST")
