"""Images, videos and sounds in chats of every protocol: where they may come from, and what reaches the lane."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.unit.api.asgi_client import Answer, AsgiClient, application, run
from tests.unit.serving.scripted_lane import ScriptedLane

from edgellm.api.media_settings import MediaSettings
from edgellm.api.settings import ApiSettings
from edgellm.media.limits import IMAGE_BYTES_MAX, MEDIA_PARTS_MAX

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ALL = ("text", "image", "video", "audio")


def png(colour: str = "red", side: int = 4) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, "png")
    return file.getvalue()


def wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(bytes(3200))
    return file.getvalue()


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64(content)}"


def image_url(url: Any, **further: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **further}


def chat(*parts: Any) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": list(parts)}]}


def response(*parts: Any) -> dict[str, Any]:
    return {"model": "tiny", "input": [{"role": "user", "content": list(parts)}]}


def message(*blocks: Any) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": list(blocks)}]}


def block(content: bytes, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": b64(content)}}


def with_media(
    scenario: Callable[[AsgiClient, ScriptedLane], Coroutine[Any, Any, None]],
    modalities: tuple[str, ...] = ALL,
    **settings: Any,
) -> None:
    async def whole() -> None:
        lane = ScriptedLane(input_modalities=modalities)
        async with application(lane, settings=ApiSettings(media=MediaSettings(**settings))) as (client, _):
            await scenario(client, lane)

    run(whole())


async def begun(lane: ScriptedLane, count: int, asking: asyncio.Task[Answer]) -> None:
    """Return once that many requests have reached the lane. Raises the answer of one that did not."""
    while len(lane.generations) < count:  # a lane tells nobody
        if asking.done():
            raise AssertionError(asking.result().body)
        await asyncio.sleep(0.005)


async def asked(
    client: AsgiClient, lane: ScriptedLane, path: str, body: dict[str, Any]
) -> list[tuple[str, str, bytes]]:
    """Kind, place and content of what reached the lane."""
    asking = asyncio.create_task(client.post(path, body))
    await begun(lane, len(lane.generations) + 1, asking)
    generation = lane.generations[-1]
    got: list[tuple[str, str, bytes]] = []
    for each in generation.request.media:
        with each.files[0].reader() as stream:
            got.append((each.kind, each.place, stream.read()))
    generation.say("ok")
    generation.finish()
    answer = await asking
    assert answer.status == 200, answer.body
    assert all(file.fileno() == -1 for each in generation.request.media for file in each.files)  # given up
    return got


async def refused(client: AsgiClient, path: str, body: dict[str, Any]) -> tuple[int, str, str | None, str]:
    answer: Answer = await client.post(path, body)
    if path == MESSAGES:
        error = answer.json["error"]
        return answer.status, error["details"]["error_code"], error["details"]["param"], error["message"]
    return answer.status, answer.error["code"], answer.error["param"], answer.error["message"]


def test_every_protocol_brings_images_in_their_order() -> None:
    red, blue = png("red"), png("blue")

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        body = chat(
            "What", image_url(data_url(red)), image_url(data_url(blue), detail="low"), {"type": "text", "text": "?"}
        )
        expected = [("image", "messages[0].content[1]", red), ("image", "messages[0].content[2]", blue)]
        assert await asked(client, lane, CHAT, body) == expected
        kinds = [part["type"] for part in lane.generations[-1].request.prompt.messages[0]["content"]]  # type: ignore[union-attr]
        assert kinds == ["text", "image", "image", "text"]

        parts = [
            {"type": "input_text", "text": "What"},
            {"type": "input_image", "image_url": data_url(red), "detail": "auto"},
        ]
        assert await asked(client, lane, RESPONSES, response(*parts)) == [("image", "input[0].content[1]", red)]

        blocks = [block(red), {"type": "text", "text": "and"}, block(blue)]
        assert await asked(client, lane, MESSAGES, message(*blocks)) == [
            ("image", "messages[0].content[0]", red),
            ("image", "messages[0].content[2]", blue),
        ]

    with_media(scenario)


def test_images_of_tool_results_and_of_earlier_turns_come_in_the_order_of_the_conversation() -> None:
    first, second, third = png("red"), png("green"), png("blue")
    body = {
        "model": "tiny",
        "max_tokens": 3,
        "tools": [{"name": "look", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [
            {"role": "user", "content": [block(first)]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "look", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": [{"type": "text", "text": "see"}, block(second)],
                    },
                    block(third),
                ],
            },
        ],
    }

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        assert await asked(client, lane, MESSAGES, body) == [
            ("image", "messages[0].content[0]", first),
            ("image", "messages[2].content[0].content[1]", second),
            ("image", "messages[2].content[1]", third),
        ]
        roles = [turn["role"] for turn in lane.generations[-1].request.prompt.messages]  # type: ignore[union-attr]
        assert roles == ["user", "assistant", "tool", "user"]

    with_media(scenario)


def test_a_kept_response_keeps_its_images_for_the_next_turn() -> None:
    red, blue = png("red"), png("blue")

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        async def turn(body: dict[str, Any]) -> tuple[str, list[bytes]]:
            asking = asyncio.create_task(client.post(RESPONSES, body))
            await begun(lane, len(lane.generations) + 1, asking)
            contents = []
            for each in lane.generations[-1].request.media:
                with each.files[0].reader() as stream:
                    contents.append(stream.read())
            lane.generations[-1].finish()
            answer = await asking
            return answer.json["id"], contents

        image = {"type": "input_image", "image_url": data_url(red)}
        first, contents = await turn(response(image))
        assert contents == [red]
        again, contents = await turn(
            {**response({**image, "image_url": data_url(blue)}), "previous_response_id": first}
        )
        assert contents == [red, blue]
        _, contents = await turn({"model": "tiny", "input": "and now?", "previous_response_id": again})
        assert contents == [red, blue]

    with_media(scenario)


@pytest.mark.parametrize(
    "part",
    [
        image_url(data_url(png())),
        {"type": "image_url", "image_url": data_url(png())},
        {"type": "image", "image": data_url(png())},
        {"type": "image", "image": {"url": data_url(png())}, "do_resize": False},
        image_url(data_url(png(), "image/PNG").replace("data:image/PNG", "data:image/png;name=a.png")),
        image_url(data_url(png(), "application/octet-stream")),
    ],
)
def test_the_shapes_that_clients_use_are_taken(part: dict[str, Any]) -> None:
    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        assert await asked(client, lane, CHAT, chat(part)) == [("image", "messages[0].content[0]", png())]
        assert lane.generations[-1].request.media[0].resizes is (part.get("do_resize") is not False)

    with_media(scenario)


def test_sounds_and_videos_come_too_where_a_model_takes_them() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": b64(wav()), "format": "wav"}}
    frames = {"type": "video", "video": [data_url(png("red")), data_url(png("blue"))], "fps": 2}

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        got = await asked(client, lane, CHAT, chat(sound, frames))
        assert [(kind, place) for kind, place, _ in got] == [
            ("audio", "messages[0].content[0]"),
            ("video", "messages[0].content[1]"),
        ]
        video = lane.generations[-1].request.media[1]
        assert (len(video.files), video.fps) == (2, 2.0)

    with_media(scenario)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_a_model_of_text_refuses_with_the_part_whatever_is_in_it(path: str) -> None:
    bodies = {
        CHAT: chat("x", image_url("")),
        RESPONSES: response({"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": 5}),
        MESSAGES: message({"type": "text", "text": "x"}, {"type": "image", "source": None}),
    }
    place = {CHAT: "messages[0].content[1]", RESPONSES: "input[0].content[1]", MESSAGES: "messages[0].content[1]"}[path]

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        assert (await refused(client, path, bodies[path]))[:3] == (400, "unsupported_modality", place)
        assert not lane.generations

    with_media(scenario, ("text",))


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "input_audio", "input_audio": {"data": b64(wav()), "format": "wav"}}, "audio"),
        ({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}, "video"),
    ],
)
def test_a_model_of_images_alone_refuses_other_kinds(part: dict[str, Any], kind: str) -> None:
    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        status, code, param, text = await refused(client, CHAT, chat(image_url(data_url(png())), part))
        assert (status, code, param) == (400, "unsupported_modality", "messages[0].content[1]")
        assert f"no {kind} input" in text

    with_media(scenario, ("text", "image"))


URL = "messages[0].content[0].image_url.url"
REFUSED: list[tuple[dict[str, Any], int, str, str]] = [
    (image_url("data:image/png;base64,###"), 400, "invalid_value", URL),
    (image_url("data:image/png;base64,iVBOR"), 400, "invalid_value", URL),
    (image_url("data:image/png;base64,iVBO Rw0K"), 400, "invalid_value", URL),
    (image_url("data:image/png,plain"), 400, "invalid_value", URL),
    (image_url("data:"), 400, "invalid_value", URL),
    (image_url("data:image/png;base64,"), 400, "invalid_value", URL),
    (image_url(data_url(b"no image at all")), 400, "invalid_value", URL),
    (image_url(data_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml")), 400, "invalid_value", URL),
    (image_url(data_url(png(), "image/jpeg")), 400, "invalid_value", URL),
    (image_url(data_url(png(), "text/html")), 400, "invalid_value", URL),
    (image_url(data_url(wav(), "audio/wav")), 400, "invalid_value", URL),
    (image_url("https://example.com/a.png"), 403, "media_not_allowed", URL),
    (image_url("http://169.254.169.254/latest/meta-data"), 403, "media_not_allowed", URL),
    (image_url("file:///etc/passwd"), 403, "media_not_allowed", URL),
    (image_url("/etc/passwd"), 403, "media_not_allowed", URL),
    (image_url("../../etc/passwd"), 403, "media_not_allowed", URL),
    (image_url("ftp://example.com/a.png"), 400, "invalid_value", URL),
    (image_url("gopher://example.com/"), 400, "invalid_value", URL),
    (image_url(5), 400, "invalid_value", URL),
    (image_url(None), 400, "invalid_value", URL),
    (image_url(data_url(png()), detail="huge"), 400, "invalid_value", "messages[0].content[0].detail"),
    (image_url(data_url(png()), do_resize="no"), 400, "invalid_value", "messages[0].content[0].do_resize"),
    ({"type": "image_url"}, 400, "invalid_value", "messages[0].content[0].image_url"),
    (
        {"type": "input_audio", "input_audio": {"data": b64(wav()), "format": "opus"}},
        400,
        "invalid_value",
        "messages[0].content[0].input_audio.format",
    ),
    (
        {"type": "input_audio", "input_audio": {"data": b64(wav()), "format": "mp3"}},
        400,
        "invalid_value",
        "messages[0].content[0].input_audio.data",
    ),
    ({"type": "video", "video": []}, 400, "invalid_value", "messages[0].content[0].video"),
    (
        {"type": "video", "video": [data_url(png()), data_url(b"x" * 40)]},
        400,
        "invalid_value",
        "messages[0].content[0].video[1]",
    ),
]


@pytest.mark.parametrize(("part", "status", "code", "param"), REFUSED, ids=lambda value: str(value)[:50])
def test_what_is_no_medium_or_not_allowed_is_refused_with_its_field(
    part: dict[str, Any], status: int, code: str, param: str
) -> None:
    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        assert (await refused(client, CHAT, chat(part)))[:3] == (status, code, param)
        assert not lane.generations
        await asked(client, lane, CHAT, chat("still", image_url(data_url(png()))))

    with_media(scenario)


@pytest.mark.parametrize(
    ("source", "code", "param"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "###"}, "invalid_value", "source.data"),
        ({"type": "base64", "media_type": "image/jpeg", "data": b64(png())}, "invalid_value", "source.data"),
        ({"type": "base64", "data": b64(png())}, "invalid_value", "source.media_type"),
        ({"type": "url", "url": "https://example.com/a.png"}, "media_not_allowed", "source.url"),
        ({"type": "file", "file_id": "file_1"}, "unsupported_parameter", "source.type"),
        ({"type": "other"}, "invalid_value", "source.type"),
        ("x", "invalid_value", "source"),
    ],
)
def test_anthropic_sources_are_named_where_they_are(source: Any, code: str, param: str) -> None:
    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        body = message({"type": "text", "text": "x"}, {"type": "image", "source": source})
        body["messages"] = [
            {"role": "user", "content": "before"},
            {"role": "user", "content": "join"},
            *body["messages"],
        ]
        status, found, place, _ = await refused(client, MESSAGES, body)
        assert (status, found) == (403 if code == "media_not_allowed" else 400, code)
        assert place == f"messages[2].content[1].{param}"

    with_media(scenario)


def test_documents_are_refused_by_name() -> None:
    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        document = {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
        }
        status, code, param, text = await refused(client, MESSAGES, message(document))
        assert (status, code, param) == (400, "unsupported_modality", "messages[0].content[0]")
        assert "no document input" in text
        file = {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERg=="}
        assert (await refused(client, RESPONSES, response(file)))[:3] == (
            400,
            "unsupported_modality",
            "input[0].content[0]",
        )
        image = {"type": "input_image", "file_id": "file_1"}
        assert (await refused(client, RESPONSES, response(image)))[:2] == (400, "unsupported_parameter")

    with_media(scenario)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_only_users_and_tools_bring_media(role: str) -> None:
    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        body = {
            "model": "tiny",
            "messages": [{"role": role, "content": [image_url(data_url(png()))]}, {"role": "user", "content": "x"}],
        }
        status, code, param, text = await refused(client, CHAT, body)
        assert (status, code, param) == (400, "invalid_value", "messages[0].content[0]")
        assert role in text

    with_media(scenario)


def test_files_below_the_allowed_folder_are_read_and_no_others(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside.png"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "a b.png").write_bytes(png())
    outside.write_bytes(png())
    (root / "link.png").symlink_to(outside)
    (root / "inner.png").symlink_to(root / "deep" / "a b.png")
    (root / "folder.png").mkdir()
    twin = tmp_path / "root-twin"
    twin.mkdir()
    (twin / "a.png").write_bytes(png())
    inside = [f"file://{root}/deep/a%20b.png", f"{root}/deep/a b.png", "deep/a b.png", "deep/../inner.png"]
    forbidden = [
        "link.png",
        "../outside.png",
        f"file://{outside}",
        f"{twin}/a.png",
        "/proc/self/environ",
        "deep/../../x",
    ]

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        for url in inside:
            assert (await asked(client, lane, CHAT, chat(image_url(url))))[0][2] == png()
        for url in forbidden:
            assert (await refused(client, CHAT, chat(image_url(url))))[:3] == (403, "media_not_allowed", URL)
        for url in ("missing.png", "folder.png"):
            assert (await refused(client, CHAT, chat(image_url(url))))[:3] == (400, "invalid_value", URL)

    with_media(scenario, local_root=root)


def test_counts_and_sizes_hold_on_both_sides() -> None:
    part = image_url(data_url(png()))

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        most = chat(*[part] * MEDIA_PARTS_MAX)
        assert len(await asked(client, lane, CHAT, most)) == MEDIA_PARTS_MAX
        most["messages"].append({"role": "user", "content": [part]})
        status, code, param, text = await refused(client, CHAT, most)
        assert (status, code, param) == (400, "invalid_value", "messages[1].content[0]")
        assert f"may have {MEDIA_PARTS_MAX} images, videos and sounds, and has {MEDIA_PARTS_MAX + 1}" in text
        padded = png() + bytes(IMAGE_BYTES_MAX - len(png()))
        assert (await asked(client, lane, CHAT, chat(image_url(data_url(padded)))))[0][2] == padded
        status, code, param, text = await refused(client, CHAT, chat(image_url(data_url(padded + b"x"))))
        assert (status, code, param) == (400, "invalid_value", URL)
        assert f"has {IMAGE_BYTES_MAX + 1} bytes; {IMAGE_BYTES_MAX} are allowed" in text

    with_media(scenario)


def test_what_requests_hold_together_is_bounded_and_given_back() -> None:
    image = png() + bytes(200_000)

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        body = chat(image_url(data_url(image)))
        first = asyncio.create_task(client.post(CHAT, body))
        await begun(lane, 1, first)
        assert (await refused(client, CHAT, body))[:2] == (429, "server_busy")
        lane.generations[0].finish()
        assert (await first).status == 200
        for _ in range(3):
            assert (await refused(client, CHAT, chat(image_url(data_url(b"no image" + bytes(200_000))))))[0] == 400
        await asked(client, lane, CHAT, body)

    with_media(scenario, bytes_max=300_000)


def test_a_body_beyond_the_media_of_a_request_is_too_large() -> None:
    image = data_url(png() + bytes(200_000))

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        assert len(await asked(client, lane, CHAT, chat(image_url(image)))) == 1
        assert (await refused(client, CHAT, chat(image_url(image), image_url(image))))[:2] == (413, "request_too_large")
        await asked(client, lane, CHAT, chat(image_url(image)))

    with_media(scenario, request_bytes_max=300_000)


def test_the_text_of_a_body_has_its_own_limit_with_media_too() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(input_modalities=ALL)
        async with application(lane, settings=ApiSettings(body_bytes_max=70_000)) as (client, _):
            await asked(client, lane, CHAT, chat(image_url(data_url(png() + bytes(300_000)))))
            assert (await refused(client, CHAT, chat("x y" * 30_000)))[:2] == (413, "request_too_large")

    run(scenario())


def test_a_server_of_text_takes_bodies_no_larger_for_images() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane, settings=ApiSettings(body_bytes_max=70_000)) as (client, _):
            await asked(client, lane, CHAT, chat("x"))
            body = chat(image_url(data_url(png() + bytes(300_000))))
            assert (await refused(client, CHAT, body))[:2] == (413, "request_too_large")

    run(scenario())


def test_tokens_of_images_are_not_counted_and_never_as_none() -> None:
    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        body = {name: value for name, value in message(block(png())).items() if name != "max_tokens"}
        answer = await client.post(f"{MESSAGES}/count_tokens", body)
        assert answer.status == 400
        assert answer.json["error"]["details"]["param"] == "messages[0].content[0]"

    with_media(scenario)


def test_no_word_of_an_image_is_in_an_error() -> None:
    secret = b64(b"the secret of the image" * 5000)

    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        for part in (image_url(f"data:image/png;base64,{secret}"), image_url(f"{secret[:200]}://x"), image_url(secret)):
            answer = await client.post(CHAT, chat(part))
            assert answer.status in (400, 403)
            assert secret[:40] not in answer.body.decode()

    with_media(scenario)


def test_models_say_what_they_take() -> None:
    async def scenario(client: AsgiClient, lane: ScriptedLane) -> None:
        answer = await client.get("/v1/models")
        assert answer.json["data"][0]["edgellm"]["input_modalities"] == list(ALL)
        assert json.dumps(answer.json)

    with_media(scenario)
