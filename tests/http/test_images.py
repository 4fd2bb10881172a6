"""Images in chats, through the real daemon, its workers and a vision model, by the official clients."""

from __future__ import annotations

import base64
import io
import os
import random
import signal
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from PIL import Image
from tests.http.daemon_process import MODEL, Daemon
from tests.models.tiny_vision import VISION_VARIANTS, write_vision_checkpoint

CANARY = "the words of nobody but this test"
MODEL_TOKENS = 6
GREEDY = {"temperature": 0}  # a field that the Anthropic client has no name for
BOMB_SIDE = 30_000
SLOW_SIDE = 7_900  # nearly the most pixels that an image may have: a second of decoding, from a small file


def png(seed: int, width: int = 40, height: int = 32) -> bytes:
    """Noise, so that any two differ everywhere."""
    file = io.BytesIO()
    Image.frombytes("RGB", (width, height), random.Random(seed).randbytes(3 * width * height)).save(file, "png")
    return file.getvalue()


def plain_png(width: int, height: int) -> bytes:
    """A small file of one colour, of any size."""
    lines = zlib.compressobj(9)
    data = b"".join(lines.compress(bytes(1 + 3 * width)) for _ in range(height)) + lines.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", header), (b"IDAT", data), (b"IEND", b"")):
        file += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return file


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def image_part(content: bytes, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{b64(content)}"}}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def image_block(content: bytes) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(content)}}


def user(*parts: Any) -> Any:
    return {"role": "user", "content": list(parts)}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_checkpoint(tmp_path_factory.mktemp("vision"), VISION_VARIANTS["smolvlm"])


@pytest.fixture(scope="module")
def images_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    (folder / "one.png").write_bytes(png(1))
    return folder


class Pictures(BaseHTTPRequestHandler):
    """Another host of the network, as far as the daemon knows."""

    def do_GET(self) -> None:
        status, headers, body = {
            "/one.png": (200, {}, png(1)),
            "/page": (200, {"Content-Type": "image/png"}, b"<html></html>"),
            "/away": (302, {"Location": "/one.png"}, b""),
            "/large": (200, {"Content-Length": str(1 << 40)}, b""),
        }.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def pictures() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def vision(
    checkpoint: Path, images_folder: Path, pictures: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    records = tmp_path_factory.mktemp("records") / "records.jsonl"
    cache = tmp_path_factory.mktemp("cache")
    started = Daemon(
        checkpoint,
        *("--cache-dir", str(cache), "--records", str(records), "--allowed-local-media-path", str(images_folder)),
        *("--allowed-media-hosts", pictures),
    )
    started.records = records  # type: ignore[attr-defined]
    try:
        yield started.wait_until_ready()
    finally:
        started.stop()


@pytest.fixture
def client(vision: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{vision.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def claude(vision: Daemon) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=vision.url, api_key="none", max_retries=0) as made:
        yield made


def said(client: openai.OpenAI, *parts: Any, **further: Any) -> tuple[str, int]:
    answer = client.chat.completions.create(
        model=MODEL, messages=[user(*parts)], max_tokens=MODEL_TOKENS, temperature=0, **further
    )
    assert answer.usage is not None
    return answer.choices[0].message.content or "", answer.usage.prompt_tokens


def test_an_image_is_seen_and_counted(client: openai.OpenAI) -> None:
    without = said(client, text_part("What is it?"))
    first = said(client, image_part(png(1)), text_part("What is it?"))
    assert first == said(client, image_part(png(1)), text_part("What is it?"))
    other = said(client, image_part(png(2)), text_part("What is it?"))
    assert first[1] == other[1] > without[1]
    assert len({without[0], first[0], other[0]}) == 3


def test_a_file_of_any_format_is_the_same_image(client: openai.OpenAI) -> None:
    pixels = Image.open(io.BytesIO(png(1)))
    answers = set()
    for name in ("png", "bmp", "webp"):
        file = io.BytesIO()
        pixels.save(file, name, **({"lossless": True} if name == "webp" else {}))
        answers.add(said(client, image_part(file.getvalue(), f"image/{name}"), text_part("?")))
    assert len(answers) == 1


def test_several_images_count_in_their_order(client: openai.OpenAI) -> None:
    one, two, word = image_part(png(1)), image_part(png(2)), text_part("and")
    assert said(client, one, word, two)[0] != said(client, two, word, one)[0]
    assert said(client, one, word, two)[1] == said(client, two, word, one)[1]


def test_the_name_of_a_place_for_an_image_is_text_where_a_client_writes_it(client: openai.OpenAI) -> None:
    told = client.chat.completions.create(
        model=MODEL,
        messages=[user(text_part("what is <image>"), image_part(png(1)))],
        max_tokens=MODEL_TOKENS,
    )
    assert told.choices[0].message.content
    raw = client.completions.create(model=MODEL, prompt="what is <image>", max_tokens=MODEL_TOKENS)
    assert raw.usage is not None
    assert raw.usage.completion_tokens == MODEL_TOKENS


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    parts = [image_part(png(3)), text_part("Say it.")]
    stream: Any = client.chat.completions.create(
        model=MODEL, messages=[user(*parts)], max_tokens=MODEL_TOKENS, temperature=0, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == said(client, *parts)[0]


def test_an_image_of_an_earlier_turn_is_still_seen(client: openai.OpenAI) -> None:
    def second_turn(seed: int) -> Any:
        messages: list[Any] = [
            user(image_part(png(seed)), text_part("Look.")),
            {"role": "assistant", "content": "I do."},
            user(text_part("And?")),
        ]
        return client.chat.completions.create(model=MODEL, messages=messages, max_tokens=MODEL_TOKENS, temperature=0)

    first, again, other = second_turn(1), second_turn(1), second_turn(2)
    assert first.choices[0].message.content == again.choices[0].message.content
    assert first.choices[0].message.content != other.choices[0].message.content
    assert first.usage.prompt_tokens_details.cached_tokens < again.usage.prompt_tokens_details.cached_tokens
    assert again.usage.prompt_tokens_details.cached_tokens > other.usage.prompt_tokens_details.cached_tokens


def test_a_prompt_with_too_many_images_is_too_long_and_says_how_long(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        said(client, *[image_part(png(seed)) for seed in range(40)])
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "messages")
    assert any(number.isdigit() and int(number) > 2048 for number in str(refused.value).replace(",", " ").split())


def test_what_was_decoded_for_a_refused_prompt_is_given_back(client: openai.OpenAI, vision: Daemon) -> None:
    said(client, image_part(png(1)))

    def descriptors() -> int:
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in worker_pids(vision))

    before = descriptors()
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match="the most is"):
            said(client, *[image_part(png(seed)) for seed in range(40)])
        with pytest.raises(openai.BadRequestError):
            said(client, *[image_part(png(seed)) for seed in range(15)], image_part(png(15)[:300]))
    vision.wait_for(lambda: descriptors() <= before)


def test_an_answer_has_the_room_that_images_leave(client: openai.OpenAI) -> None:
    messages = [user(image_part(png(1)))]
    limits: list[dict[str, Any]] = [{}, {"max_tokens": 1_000_000}]
    for limit in limits:
        answer: Any = client.chat.completions.create(model=MODEL, messages=messages, temperature=0, **limit)
        assert answer.usage is not None
        assert answer.usage.total_tokens <= 2048


def test_choices_of_a_request_see_the_same_images(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=[user(image_part(png(1)), "?")], n=2, max_tokens=MODEL_TOKENS, temperature=0
    )
    first, second = (choice.message.content for choice in answer.choices)
    assert first == second == said(client, image_part(png(1)), "?")[0]


def test_responses_see_images_and_remember_them(client: openai.OpenAI) -> None:
    def turn(text: str, **further: Any) -> Any:
        content: list[Any] = [{"type": "input_text", "text": text}]
        if "seed" in further:
            url = f"data:image/png;base64,{b64(png(further.pop('seed')))}"
            content.append({"type": "input_image", "image_url": url, "detail": "auto"})
        return client.responses.create(
            model=MODEL,
            input=[{"role": "user", "content": content}],
            max_output_tokens=16,
            temperature=0,
            **further,
        )

    one, two = turn("What?", seed=1), turn("What?", seed=2)
    assert one.output_text != two.output_text
    later = [turn("And?", previous_response_id=each.id).output_text for each in (one, one, two)]
    assert later[0] == later[1] != later[2]


def test_the_anthropic_client_sends_images_and_gets_streams(claude: anthropic.Anthropic) -> None:
    def ask(seed: int) -> str:
        message = claude.messages.create(
            model=MODEL,
            messages=[user(image_block(png(seed)), {"type": "text", "text": "What?"})],
            max_tokens=MODEL_TOKENS,
            extra_body=GREEDY,
        )
        return message.content[0].text  # type: ignore[union-attr]

    assert ask(1) == ask(1) != ask(2)
    with claude.messages.stream(
        model=MODEL,
        messages=[user(image_block(png(1)), {"type": "text", "text": "What?"})],
        max_tokens=MODEL_TOKENS,
        extra_body=GREEDY,
    ) as stream:
        assert "".join(stream.text_stream) == ask(1)


def test_an_image_in_a_tool_result_is_seen(claude: anthropic.Anthropic) -> None:
    def ask(seed: int) -> str:
        messages: list[Any] = [
            {"role": "user", "content": "Look outside."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "camera", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": [{"type": "text", "text": "see"}, image_block(png(seed))],
                    }
                ],
            },
        ]
        answer = claude.messages.create(model=MODEL, messages=messages, max_tokens=MODEL_TOKENS, extra_body=GREEDY)
        return answer.content[0].text  # type: ignore[union-attr]

    assert ask(1) == ask(1) != ask(2)


def test_the_model_says_that_it_takes_images(client: openai.OpenAI, vision: Daemon) -> None:
    assert vision.get("/v1/models").json()["data"][0]["edgellm"]["input_modalities"] == ["text", "image"]


def test_images_and_their_tokens_are_counted(client: openai.OpenAI, vision: Daemon) -> None:
    def counted(name: str) -> float:
        lines = [line for line in vision.get("/metrics").text.splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    images, tokens = 'edgellm_lane_media{counter="total_images"', 'edgellm_lane_media{counter="total_image_tokens"'
    served = 'edgellm_media_total{kind="image"'
    said(client, image_part(png(1)))
    before = counted(served)
    vision.wait_for(lambda: counted(images) > 0)
    encoded = counted(images), counted(tokens)
    said(client, image_part(png(50)), image_part(png(51)))
    assert counted(served) == before + 2
    vision.wait_for(lambda: counted(images) >= encoded[0] + 2)
    assert counted(tokens) > encoded[1]
    records: Path = vision.records  # type: ignore[attr-defined]
    vision.wait_for(lambda: '"media":{"image":2}' in records.read_text().replace(" ", ""))


def test_a_file_of_the_allowed_folder_is_seen(client: openai.OpenAI, images_folder: Path) -> None:
    named = said(client, {"type": "image_url", "image_url": {"url": f"file://{images_folder}/one.png"}}, text_part("?"))
    assert named == said(client, image_part(png(1)), text_part("?"))
    for url in ("/etc/hostname", f"{images_folder}/../x", "file:///proc/self/environ"):
        with pytest.raises(openai.PermissionDeniedError) as refused:
            said(client, {"type": "image_url", "image_url": {"url": url}})
        assert refused.value.code == "media_not_allowed"


def test_an_image_of_a_host_that_the_operator_names_is_seen_and_no_other(client: openai.OpenAI, pictures: str) -> None:
    def ask(url: str) -> str:
        return said(client, {"type": "image_url", "image_url": {"url": url}}, text_part("?"))[0]

    assert ask(f"http://{pictures}/one.png") == said(client, image_part(png(1)), text_part("?"))[0]
    for path, reason in (
        ("away", "redirects are not followed"),
        ("large", "more than 33554432 bytes"),
        ("missing", "status 404"),
        ("page", "must be png, jpeg"),
    ):
        with pytest.raises(openai.BadRequestError, match=reason):
            ask(f"http://{pictures}/{path}")
    host, _, port = pictures.partition(":")
    for url in (f"http://localhost:{port}/one.png", f"http://{host}/one.png", f"http://127.0.0.2:{port}/one.png"):
        with pytest.raises(openai.PermissionDeniedError):
            ask(url)


@pytest.mark.parametrize(
    ("part", "status", "code"),
    [
        (image_part(b"no image"), 400, "invalid_value"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,***"}}, 400, "invalid_value"),
        (image_part(png(1), "image/jpeg"), 400, "invalid_value"),
        (image_part(png(1)[:200]), 400, "invalid_value"),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, 403, "media_not_allowed"),
        ({"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}, 403, "media_not_allowed"),
        ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}, 400, "unsupported_modality"),
        ({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}, 400, "unsupported_modality"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_refused_with_its_part_in_streams_too(
    client: openai.OpenAI, vision: Daemon, part: dict[str, Any], status: int, code: str
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.APIStatusError) as refused:
            said(client, text_part(CANARY), part, stream=stream)
        assert (refused.value.status_code, refused.value.code) == (status, code)
        assert str(refused.value.param).startswith("messages[0].content[1]")
    vision.wait_for(vision.is_idle)


def test_a_text_model_refuses_with_the_part(daemon: Daemon) -> None:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            said(client, text_part("?"), image_part(png(1)))
        assert (refused.value.code, refused.value.param) == ("unsupported_modality", "messages[0].content[1]")
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(
                model=MODEL,
                input=[{"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "detail": "auto"}]}],
            )
        assert (refused.value.code, refused.value.param) == ("unsupported_modality", "input[0].content[0]")
    with (
        anthropic.Anthropic(base_url=daemon.url, api_key="none", max_retries=0) as claude,
        pytest.raises(anthropic.BadRequestError) as error,
    ):
        claude.messages.create(model=MODEL, max_tokens=3, messages=[user(image_block(png(1)))])
    assert error.value.body["error"]["details"]["error_code"] == "unsupported_modality"  # type: ignore[index]


def worker_pids(vision: Daemon) -> list[int]:
    path = Path(f"/proc/{vision.process.pid}/task/{vision.process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def children(pid: int) -> list[int]:
    """Of any of its threads."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in path.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def decoding(vision: Daemon) -> list[int]:
    """Processes that decode for a request now."""
    return [job for worker in worker_pids(vision) for server in children(worker) for job in children(server)]


def test_bombs_are_refused_with_their_part_and_others_are_served(client: openai.OpenAI, vision: Daemon) -> None:
    before = worker_pids(vision)
    bomb = plain_png(BOMB_SIDE, BOMB_SIDE)
    assert len(bomb) < 4 << 20
    for _ in range(3):
        with pytest.raises(openai.BadRequestError) as refused:
            said(client, image_part(png(1)), image_part(bomb))
        assert refused.value.param == "messages[0].content[1]"
        assert f"{BOMB_SIDE} x {BOMB_SIDE} pixels" in str(refused.value)
    said(client, image_part(png(1)))
    assert worker_pids(vision) == before


class Asking:
    """A request that a thread waits for; ``leave`` closes its connection."""

    def __init__(self, vision: Daemon, *parts: Any) -> None:
        self._client = httpx.Client(timeout=120)
        self._body = {"model": MODEL, "messages": [user(*parts)], "max_tokens": MODEL_TOKENS, "temperature": 0}
        self._url = f"{vision.url}/v1/chat/completions"
        self.status: int | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self.status = self._client.post(self._url, json=self._body).status_code
        except BaseException as error:
            self.error = error

    def leave(self) -> None:
        self._client.close()
        self.ended()

    def ended(self) -> int | None:
        self._thread.join(120)
        assert not self._thread.is_alive()
        self._client.close()
        return self.status


def slow_parts(count: int = 4) -> list[dict[str, Any]]:
    return [image_part(plain_png(SLOW_SIDE, SLOW_SIDE))] * count


def test_a_client_that_leaves_while_its_images_are_decoded_costs_nothing_more(
    client: openai.OpenAI, vision: Daemon
) -> None:
    said(client, image_part(png(1)))
    asking = Asking(vision, *slow_parts())
    vision.wait_for(lambda: bool(decoding(vision)))
    asking.leave()
    vision.wait_for(lambda: not decoding(vision))
    vision.wait_for(vision.is_idle)
    said(client, image_part(png(1)))


def test_a_worker_that_is_killed_while_it_decodes_is_replaced_and_its_request_runs_again(
    client: openai.OpenAI, vision: Daemon
) -> None:
    said(client, image_part(png(1)))
    (worker,) = [pid for pid in worker_pids(vision) if children(pid)]
    asking = Asking(vision, *slow_parts(1), image_part(png(1)))
    vision.wait_for(lambda: bool(decoding(vision)))
    jobs = decoding(vision)
    os.kill(worker, signal.SIGKILL)
    assert asking.ended() == 200, vision.log
    assert not any(Path(f"/proc/{job}").exists() for job in jobs)  # they ended with it
    said(client, image_part(png(1)))


def test_nothing_of_an_image_is_kept_anywhere(client: openai.OpenAI, vision: Daemon) -> None:
    content = png(77)
    said(client, text_part(CANARY), image_part(content))
    with pytest.raises(openai.BadRequestError):
        said(client, text_part(CANARY), image_part(content[:300]))
    marks = [CANARY, b64(content)[30:60], b64(content)[-60:-30]]
    deadline = time.monotonic() + 30
    records: Path = vision.records  # type: ignore[attr-defined]
    while len(records.read_text().splitlines()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    shown = [vision.log, records.read_text(), vision.get("/metrics").text, vision.get("/health").text]
    assert not [mark for mark in marks for text in shown if mark in text]
