"""Who the client is behind gateways: listed ones are believed, everybody else is who they are."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.unit.api.asgi_client import AsgiClient, application, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words

from edgellm.api.forwarded import ForwardedClients
from edgellm.api.settings import ApiSettings

GATEWAYS = [ip_network(text) for text in ("192.0.2.0/28", "2001:db8::5", "198.51.100.7")]
GATEWAY = "192.0.2.1"


def seen(peer: str | None, *headers: tuple[str, str], gateways: Any = GATEWAYS) -> str | None:
    """The address that the application sees."""
    clients: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        clients.append(scope.get("client"))

    async def receive() -> Message:
        raise AssertionError

    async def send(_message: Message) -> None:
        raise AssertionError

    scope: dict[str, Any] = {
        "type": "http",
        "client": None if peer is None else (peer, 5),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }
    asyncio.run(ForwardedClients(app, gateways)(scope, receive, send))
    return clients[0] and clients[0][0]


def forwarded_for(value: str) -> tuple[str, str]:
    return ("x-forwarded-for", value)


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("203.0.113.9:4711", "203.0.113.9"),
        ("2001:db8::9", "2001:db8::9"),
        ("[2001:db8::9]:4711", "2001:db8::9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("10.9.9.9, 203.0.113.9", "203.0.113.9"),  # the client made up what stands before its own address
        ("10.9.9.9, 203.0.113.9, 198.51.100.7", "203.0.113.9"),  # two gateways in a row
        ("198.51.100.7", "198.51.100.7"),  # the gateway itself asks
        ("203.0.113.9, unknown", GATEWAY),
        ("203.0.113.9, unknown, 198.51.100.7", "198.51.100.7"),
        ("<script>", GATEWAY),
        (",,", GATEWAY),
        ("", GATEWAY),
    ],
)
def test_a_listed_gateway_says_who_the_client_is(value: str, client: str) -> None:
    assert seen(GATEWAY, forwarded_for(value)) == client


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ("for=203.0.113.9", "203.0.113.9"),
        ('for="203.0.113.9:4711";proto=https;by=10.0.0.1', "203.0.113.9"),
        ('proto=http;For="[2001:db8::9]:4711"', "2001:db8::9"),
        ("for=10.9.9.9, for=203.0.113.9", "203.0.113.9"),
        ("for=203.0.113.9, for=_hidden", GATEWAY),
        ("proto=https", GATEWAY),
    ],
)
def test_the_standard_header_says_the_same(value: str, client: str) -> None:
    assert seen(GATEWAY, ("forwarded", value)) == client


@pytest.mark.parametrize("peer", ["203.0.113.1", "2001:db8::6", "unix", None])
def test_anybody_else_is_who_they_are(peer: str | None) -> None:
    for header in (forwarded_for("10.9.9.9"), ("forwarded", "for=10.9.9.9")):
        assert seen(peer, header) == peer
        assert seen(GATEWAY, header, gateways=[]) == GATEWAY


def test_the_entries_of_several_lines_are_one_list() -> None:
    assert seen(GATEWAY, forwarded_for("10.9.9.9"), forwarded_for("203.0.113.9")) == "203.0.113.9"


def test_of_two_headers_that_differ_one_was_made_up() -> None:
    assert seen(GATEWAY, forwarded_for("203.0.113.9"), ("forwarded", "for=10.9.9.9")) == GATEWAY
    assert seen(GATEWAY, forwarded_for("203.0.113.9"), ("forwarded", "for=203.0.113.9")) == "203.0.113.9"


def test_a_gateway_that_came_by_ipv6_is_the_same_gateway() -> None:
    assert seen(f"::ffff:{GATEWAY}", forwarded_for("203.0.113.9")) == "203.0.113.9"


@pytest.mark.parametrize("listed", [True, False])
def test_limits_count_by_client_behind_a_listed_gateway_and_by_peer_elsewhere(listed: bool) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("hi"))
        async with application(lane, settings=ApiSettings(requests_per_minute=1)) as (client, _):
            client = AsgiClient(ForwardedClients(client.app, GATEWAYS if listed else []))
            answers = [await client.chat([forwarded_for(f"203.0.113.{number}")]) for number in range(3)]
            assert [answer.status for answer in answers] == ([200] * 3 if listed else [200, 429, 429])
            assert (await client.chat([forwarded_for("203.0.113.1")])).status == 429

    run(scenario())
