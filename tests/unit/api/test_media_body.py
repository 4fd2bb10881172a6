"""Bodies with media in them: what goes to files, what stays text, and that no text is changed by it."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.api.error_mapping import HttpError
from edgellm.api.media_body import DIVERTED_CHARACTERS_MIN, MediaBody
from edgellm.media.limits import IMAGE_BYTES_MAX

LONG = DIVERTED_CHARACTERS_MIN + 5_000
TEXT_BYTES_MAX = 4 << 20


class Held:
    def __init__(self) -> None:
        self.size_bytes = 0

    def __call__(self, more_bytes: int) -> None:
        self.size_bytes += more_bytes


def noise(size_bytes: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def taken(body: bytes, piece_bytes: int = 7_001, text_bytes_max: int = TEXT_BYTES_MAX) -> tuple[MediaBody, Held]:
    held = Held()
    media = MediaBody(text_bytes_max, held)
    for begin in range(0, len(body), piece_bytes):
        media.feed(body[begin : begin + piece_bytes])
    return media, held


def content_of(media: MediaBody, mark: str) -> bytes:
    with media.media[mark].content.file.reader() as stream:
        return stream.read()


def chat_with(url: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


@pytest.mark.parametrize("size_bytes", [LONG, LONG + 1, LONG + 2])
@pytest.mark.parametrize("piece_bytes", [1_000, 65_536, 10_000_000])
def test_an_image_goes_to_a_file_and_leaves_a_mark(size_bytes: int, piece_bytes: int) -> None:
    image = noise(size_bytes)
    media, held = taken(json.dumps(chat_with(f"data:image/png;base64,{encoded(image)}")).encode(), piece_bytes)
    parsed = media.restored(json.loads(media.text))
    (mark,) = media.media
    assert parsed == chat_with(mark)
    assert media.media[mark].header == "data:image/png;base64,"
    assert content_of(media, mark) == image
    assert held.size_bytes == size_bytes
    assert len(media.text) < 300
    media.close()


def test_slashes_may_be_escaped_as_some_encoders_do() -> None:
    image = noise(LONG)
    body = json.dumps(chat_with(f"data:image/png;base64,{encoded(image)}")).replace("/", "\\/").encode()
    media, _ = taken(body, 1_003)
    (mark,) = media.media
    assert content_of(media, mark) == image
    assert media.media[mark].header == "data:image/png;base64,"


def test_short_strings_stay_where_they_are() -> None:
    body = json.dumps(chat_with(f"data:image/png;base64,{encoded(noise(1000))}")).encode()
    media, held = taken(body)
    assert bytes(media.text) == body
    assert not media.media
    assert held.size_bytes == 0


@pytest.mark.parametrize("where", ["content", "arguments", "result", "tool", "system", "name"])
def test_text_that_looks_like_media_is_text_again(where: str) -> None:
    text = encoded(noise(LONG))
    bodies: dict[str, Any] = {
        "content": {"messages": [{"role": "user", "content": text}]},
        "arguments": {"messages": [{"content": [{"type": "tool_use", "input": {"type": "image", "data": text}}]}]},
        "result": {"messages": [{"content": [{"type": "tool_result", "content": [{"type": "text", "text": text}]}]}]},
        "tool": {"messages": [], "tools": [{"type": "function", "function": {"parameters": {"enum": [text, 1]}}}]},
        "system": {"system": [{"type": "text", "text": f"data:image/png;base64,{text}"}], "messages": ["x", None]},
        "name": {"messages": [{text: {text: 1}}], "stop": 1.5},
    }
    body = bodies[where]
    media, held = taken(json.dumps(body).encode())
    assert media.media
    assert media.restored(json.loads(media.text)) == body
    assert held.size_bytes == 0
    assert not media.media


def test_media_of_a_tool_result_stay_media() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": encoded(noise(LONG))}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": source}]}
    media, _ = taken(json.dumps({"messages": [{"role": "user", "content": [result]}]}).encode())
    parsed = media.restored(json.loads(media.text))
    assert parsed["messages"][0]["content"][0]["content"][0]["source"]["data"] in media.media


@pytest.mark.parametrize("end", [" and so on", "\\n", "\\u0041", "\\\\/", "=AAAA", "A", "AA=", "\u00e9"])
def test_what_ends_otherwise_than_base64_was_text(end: str) -> None:
    body = b'{"messages": [{"content": "' + encoded(noise(LONG - LONG % 3)).encode() + end.encode() + b'"}]}'
    for piece_bytes in (997, len(body)):
        media, held = taken(body, piece_bytes)
        assert media.restored(json.loads(media.text)) == json.loads(body)
        assert held.size_bytes == 0


def test_a_client_cannot_make_a_mark() -> None:
    first, _ = taken(json.dumps(chat_with(f"data:image/png;base64,{encoded(noise(LONG))}")).encode())
    (mark,) = first.media
    second, _ = taken(json.dumps(chat_with(mark)).encode())
    assert second.restored(json.loads(second.text)) == chat_with(mark)
    assert not second.media


def test_a_file_beyond_its_limit_takes_no_more_memory_than_the_limit() -> None:
    held = Held()
    media = MediaBody(TEXT_BYTES_MAX, held)
    media.feed(b'{"messages": [{"content": [{"type": "image_url", "image_url": "data:image/png;base64,')
    piece = encoded(bytes(3 << 20)).encode()
    for _ in range(IMAGE_BYTES_MAX // (3 << 20) + 3):
        media.feed(piece)
    media.feed(b'"}]}]}')
    (diverted,) = media.media.values()
    assert diverted.content.is_too_large
    assert held.size_bytes <= IMAGE_BYTES_MAX
    assert diverted.content.file.size_bytes <= IMAGE_BYTES_MAX


def test_text_has_a_limit_of_its_own_whatever_becomes_of_media() -> None:
    image = json.dumps(chat_with(f"data:image/png;base64,{encoded(noise(200_000))}")).encode()
    taken(image, text_bytes_max=70_000)
    text = json.dumps({"messages": [{"content": encoded(noise(200_000))}]}).encode()
    for body in (text.replace(b"=", b"!"), b'{"messages": "' + b"x y" * 30_000 + b'"}'):
        with pytest.raises(HttpError, match="larger than 70000 bytes"):
            taken(body + b'"!', text_bytes_max=70_000)
    media, _ = taken(text, text_bytes_max=70_000)
    with pytest.raises(HttpError, match="larger than 70000 bytes"):
        media.restored(json.loads(media.text))


texts = st.one_of(
    st.text(max_size=40),
    st.builds(
        lambda size, end: encoded(noise(size)) + end,
        st.integers(DIVERTED_CHARACTERS_MIN // 4 * 3 - 10, LONG),
        st.sampled_from(["", "/", '"', "\\", " ", "=", "data:"]),
    ),
    st.builds(lambda size: f"data:image/png;base64,{encoded(noise(size))}", st.integers(0, LONG)),
)
values = st.recursive(
    st.one_of(texts, st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["messages", "input", "tools", "x"]), values), st.booleans(), st.integers(1, 9))
def test_whatever_comes_parses_to_the_same(body: dict[str, Any], is_ascii: bool, pieces: int) -> None:
    written = json.dumps(body, ensure_ascii=is_ascii).encode()
    media, held = taken(written, len(written) // pieces + 1, text_bytes_max=64 << 20)
    assert media.restored(json.loads(media.text)) == body
    assert held.size_bytes == 0
