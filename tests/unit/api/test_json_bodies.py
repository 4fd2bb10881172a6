"""Bodies that are wrong before their fields are looked at: always a 400 in the usual shape, and the server goes on."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.api.asgi_client import USER_MESSAGE, application, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words

from edgellm.api import service
from edgellm.api.json_body import parse_json_object
from edgellm.errors import RequestError

VALID = json.dumps({"messages": [USER_MESSAGE]}).encode()
DEEP = 100_000
BODIES = {
    "empty": b"",
    "not json": b"hello",
    "cut off": VALID[:-1],
    "trailing text": VALID + b" x",
    "an array": b"[1]",
    "a string": b'"x"',
    "null": b"null",
    "NaN": VALID[:-1] + b', "temperature": NaN}',
    "Infinity": VALID[:-1] + b', "temperature": Infinity}',
    "a number beyond floats": VALID[:-1] + b', "temperature": 1e999}',
    "a very long number": VALID[:-1] + b', "seed": ' + b"9" * 5000 + b"}",
    "deep arrays": b"[" * DEEP + b"]" * DEEP,
    "deep arrays in a field": VALID[:-1] + b', "tools": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "brackets that never close": b"[" * DEEP,
    "a lone surrogate": b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    "a surrogate cut short": b'{"messages":[{"role":"user","content":"\\ud800x"}]}',
    "bytes that are no UTF-8": b'{"messages":[{"role":"user","content":"\xff"}]}',
    "surrogates as bytes": b'{"messages":[{"role":"user","content":"\xed\xa0\x80"}]}',
    "UTF-16": VALID.decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + VALID,
    "millions of values": VALID[:-1] + b', "metadata": [' + b"[]," * 2_000_000 + b"1]}",
    "a control character": b'{"messages":[{"role":"user","content":"\x01"}]}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_cannot_be_read_is_a_400(body: bytes) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            answer = await client.post("/v1/chat/completions", body)
            assert answer.status == 400
            assert answer.error["code"] == "invalid_value"
            assert answer.error["type"] == "invalid_request_error"
            assert (await client.post("/v1/chat/completions", VALID)).status == 200

    run(scenario())


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_too_many_digits_is_called_that(sign: str) -> None:
    assert parse_json_object(b'{"max_tokens": ' + sign.encode() + b"9" * 4000 + b"}")
    with pytest.raises(
        RequestError, match=r"^The request body holds a number with too many digits \(line 1 column \d+\)"
    ):
        parse_json_object(b'{"max_tokens": ' + sign.encode() + b"9" * 5000 + b"}")


def test_escaped_characters_arrive_as_they_were_meant() -> None:
    value = parse_json_object(b'{"text": "\\ud83d\\ude00 \\u0000 \\n"}')
    assert value == {"text": "\U0001f600 \x00 \n"}


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_an_object_or_a_request_error(body: bytes) -> None:
    try:
        assert isinstance(parse_json_object(body), dict)
    except RequestError as error:
        assert error.message.startswith("The request body")  # noqa: PT017  # either is fine, nothing else is


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=12), children, max_size=4),
    max_leaves=12,
)
NAMES = [
    *("messages", "model", "temperature", "top_p", "stop", "n", "logit_bias", "stream", "tools", "response_format"),
    *("guided_decoding", "stream_options", "seed", "logprobs", "prompt", "chat_template_kwargs", "metadata"),
]


@settings(max_examples=150, deadline=None)
@given(
    path=st.sampled_from(["/v1/chat/completions", "/v1/completions"]),
    fields=st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), JSON, max_size=5),
    base=st.sampled_from([{}, {"messages": [USER_MESSAGE]}, {"model": "tiny", "prompt": "x"}]),
)
def test_no_field_of_any_type_is_more_than_a_400(path: str, fields: dict[str, object], base: dict[str, object]) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            answer = await client.post(path, {**base, **fields})
            assert answer.status in (200, 400, 404)
            if answer.status != 200:
                assert answer.error["message"]

    try:
        json.dumps(fields).encode()
    except UnicodeEncodeError:
        return
    run(scenario())


def test_a_large_body_is_parsed_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noting(body: bytes) -> dict[str, object]:
        threads.append(threading.current_thread())
        return parse_json_object(body)

    monkeypatch.setattr(service, "parse_json_object", noting)

    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            assert (await client.chat()).status == 200
            parts = [{"type": "text", "text": "hi"}] * 64
            messages = [{"role": "user", "content": parts}] * 512
            assert (await client.post("/v1/chat/completions", {"messages": messages})).status == 200
            refused = await client.post("/v1/chat/completions", {"messages": [*messages, {"role": "user"}]})
            assert (refused.status, refused.error["param"]) == (400, "messages")

    run(scenario())
    here = threading.current_thread()
    assert [thread is here for thread in threads] == [True, False, False]
