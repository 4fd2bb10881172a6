"""Images, videos and sounds of chats on their way to NVIDIA's runtime: over HTTP, decoded, budgeted, handed over.

The board is described, and a scripted module is in the place of the one that needs a GPU.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import os
import wave
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.contract.tensorrt_board import OnBoard, described, served
from tests.unit.api.asgi_client import Answer, run
from tests.unit.runtime.scripted_runtime import ScriptedModule

from edgellm.api.media_settings import MediaSettings
from edgellm.api.settings import ApiSettings
from edgellm.media.limits import AUDIO_BYTES_MAX, IMAGE_BYTES_MAX, MEDIA_PARTS_MAX, SAMPLED_FRAMES_MAX, VIDEO_BYTES_MAX
from edgellm.runtime.llm import LLM

if importlib.util.find_spec("av") is None and os.environ.get("EDGELLM_CI") != "1":
    pytest.skip("the audio extra is not installed: make test sets it up", allow_module_level=True)
av = importlib.import_module("av")

OMNI = {"model_type": "qwen3_omni"}
VISION = {"model_type": "qwen2_5_vl"}
NEMOTRON = {"model_type": "NemotronH_Nano_Omni_Reasoning_V3", "vision_config": {}, "audio_config": {}}
# Of an engine with 64 visual tokens, 16 of them for one image, and two frames of a video.
BUDGET = {"max_image_tokens": 64, "max_image_tokens_per_image": 16}
RATE_HZ = 16_000


@pytest.fixture
def module(on_board: OnBoard) -> ScriptedModule:
    scripted = ScriptedModule(extensions=False)
    on_board(scripted)
    return scripted


def asked(
    tmp_path: Path,
    config: dict[str, Any],
    *parts: Any,
    media: MediaSettings | None = None,
    **options: Any,
) -> Answer:
    """What a chat with these parts in one message, or in several that are lists, is answered."""
    source = described(tmp_path / "model", config)
    messages = [{"role": "user", "content": each} for each in parts] if isinstance(parts[0], list) else None
    body = {"messages": messages or [{"role": "user", "content": list(parts)}], "max_tokens": 9}
    answers: list[Answer] = []

    def opened() -> LLM:
        lengths = {"max_input_len": 2048, "max_kv_cache_capacity": 4096, "max_batch_size": 1}
        return LLM(source, runtime="tensorrt", cache_dir=str(tmp_path / "cache"), **{**lengths, **BUDGET, **options})

    async def scenario() -> None:
        settings = ApiSettings(media=media or MediaSettings())
        async with served(opened, settings) as (client, _):
            answers.append(await client.post("/v1/chat/completions", body))

    run(scenario())
    return answers[0]


def data_url(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def picture(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(file, "png")
    return file.getvalue()


def image(width: int, height: int = 4, **further: Any) -> dict[str, Any]:
    url = data_url(picture(width, height), "image/png")
    return {"type": "image_url", "image_url": {"url": url}, **further}


def frames(count: int, width: int = 8, height: int = 4, **further: Any) -> dict[str, Any]:
    """A video that comes as its frames."""
    url = data_url(picture(width, height), "image/png")
    return {"type": "video_url", "video_url": {"url": [url] * count}, **further}


def encoded_video(frame_count: int, rate: int = 10, side: int = 16) -> bytes:
    sink = io.BytesIO()
    with av.open(sink, mode="w", format="mp4") as opened:
        track = opened.add_stream("mpeg4", rate=rate)
        track.width, track.height, track.pix_fmt = side, side, "yuv420p"
        for index in range(frame_count):
            frame = av.VideoFrame.from_ndarray(np.full((side, side, 3), index % 250, np.uint8), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, rate)
            opened.mux(track.encode(frame))
        opened.mux(track.encode(None))
    return sink.getvalue()


def video(content: bytes, **further: Any) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": data_url(content, "video/mp4")}, **further}


def wav(samples: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE_HZ)
        written.writeframes(bytes(2 * samples))
    return file.getvalue()


def sound(content: bytes) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(content).decode(), "format": "wav"}}


def seen(module: ScriptedModule) -> list[Any]:
    """The images and videos of the one request that arrived."""
    (native,) = module.requests[1:]  # behind the first token of the start
    buffers: Sequence[Any] = native.requests[0].image_buffers
    return list(buffers)


def refusal(answer: Answer) -> tuple[int, str | None, str]:
    return answer.status, answer.error["param"], answer.error["message"]


def test_images_and_videos_are_one_list_and_sounds_another_each_in_its_order(
    module: ScriptedModule, tmp_path: Path
) -> None:
    parts = [
        [{"type": "text", "text": "What"}, image(5), sound(wav(160)), frames(2, width=8)],
        [sound(wav(320)), image(7, do_resize=False), {"type": "text", "text": "?"}],
    ]
    answer = asked(tmp_path, OMNI, *parts)
    assert answer.status == 200, answer.body
    item = module.requests[-1].requests[0]
    kinds = [[(part.type, part.content) for part in message.contents] for message in item.messages]
    assert kinds == [
        [("text", "What"), ("image", ""), ("audio", ""), ("video", "")],
        [("audio", ""), ("image", ""), ("text", "?")],
    ]
    assert [(each.width, each.is_video, each.do_resize) for each in seen(module)] == [
        (5, False, True),
        (8, True, True),
        (7, False, False),
    ]
    assert [each.num_samples for each in item.audio_buffers] == [160, 320]
    assert {each.sample_rate for each in item.audio_buffers} == {RATE_HZ}


def test_a_video_says_how_many_frames_a_second_has_and_when_each_is(module: ScriptedModule, tmp_path: Path) -> None:
    answer = asked(tmp_path, OMNI, video(encoded_video(40)), max_image_tokens=1024)
    assert answer.status == 200, answer.body
    (buffer,) = seen(module)
    assert (buffer.frames, buffer.width, buffer.height, buffer.is_video) == (8, 16, 16, True)
    assert buffer.fps == pytest.approx(2.0)
    assert len(buffer.timestamps) == 8
    assert list(buffer.timestamps) == sorted(buffer.timestamps)


def test_other_frames_may_be_asked_for(module: ScriptedModule, tmp_path: Path) -> None:
    asked(tmp_path, OMNI, video(encoded_video(40), fps=5), max_image_tokens=1024)
    assert [each.frames for each in seen(module)] == [20]


@pytest.mark.parametrize(
    ("parts", "most_frames"),
    [
        ((), 8),
        ((image(4),), 6),
        ((image(4), image(4), image(4)), 2),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_the_budget_of_the_engine_is_shared_whatever_comes_first(
    module: ScriptedModule, tmp_path: Path, parts: tuple[Any, ...], most_frames: int, first: bool
) -> None:
    """Frames that a client chose are all looked at, or refused."""

    def with_frames(count: int, folder: str) -> Answer:
        ordered = (frames(count), *parts) if first else (*parts, frames(count))
        return asked(tmp_path / folder, VISION, *ordered)

    assert with_frames(most_frames, "fits").status == 200
    assert sorted(each.frames for each in seen(module)) == [*[1] * len(parts), most_frames]
    module.requests.clear()
    status, param, message = refusal(with_frames(most_frames + 1, "over"))
    place = 0 if first else len(parts)
    assert (status, param) == (400, f"messages[0].content[{place}]")
    assert f"needs at least {8 * (most_frames + 2)} visual tokens, and {8 * most_frames} remain" in message
    assert "build the engine with a larger max_image_tokens" in message
    assert len(module.requests) == 1, "no more than the first token of the start"


def test_a_video_takes_what_remains_and_a_second_one_what_the_first_left(
    module: ScriptedModule, tmp_path: Path
) -> None:
    clip = encoded_video(20)  # of two seconds: four frames, 32 tokens
    asked(tmp_path, VISION, video(clip), video(encoded_video(100)))
    assert [each.frames for each in seen(module)] == [4, 4]


def test_images_alone_have_no_budget_but_the_runtimes_own(module: ScriptedModule, tmp_path: Path) -> None:
    assert asked(tmp_path, VISION, *[image(4)] * 5).status == 200
    assert len(seen(module)) == 5


def test_more_images_than_the_budget_leave_a_video_nothing(module: ScriptedModule, tmp_path: Path) -> None:
    status, param, message = refusal(asked(tmp_path, VISION, *[image(4)] * 5, video(encoded_video(20))))
    assert (status, param) == (400, "messages[0].content[5]")
    assert "0 remain of the engine's 64" in message


def test_one_family_takes_one_video_and_no_images_beside_it(module: ScriptedModule, tmp_path: Path) -> None:
    options = {"max_image_tokens": 1024, "max_image_tokens_per_image": 512}
    answer = asked(tmp_path / "one", NEMOTRON, video(encoded_video(40)), sound(wav(160)), **options)
    assert answer.status == 200, answer.body
    assert [each.frames for each in seen(module)] == [4], "one a second, where nothing else was asked for"
    for parts, counts in (
        ((frames(2), frames(2)), "2 videos and 0 images"),
        ((frames(2), image(4)), "1 videos and 1 images"),
    ):
        status, param, message = refusal(asked(tmp_path / counts.replace(" ", "-"), NEMOTRON, *parts, **options))
        assert (status, param) == (400, "messages[0].content[0]")
        assert counts in message


@pytest.mark.parametrize(
    ("config", "part", "place", "kind"),
    [
        ({"model_type": "gemma4", "vision_config": {}, "audio_config": {}}, frames(2), 0, "video"),
        (VISION, sound(wav(160)), 0, "audio"),
        ({"model_type": "qwen3_asr", "thinker_config": {"audio_config": {}}}, image(4), 0, "image"),
    ],
)
def test_a_kind_that_an_engine_does_not_take_is_refused_by_its_part(
    module: ScriptedModule, tmp_path: Path, config: dict[str, Any], part: Any, place: int, kind: str
) -> None:
    answer = asked(tmp_path, config, part)
    assert (answer.status, answer.error["code"]) == (400, "unsupported_modality")
    assert answer.error["param"] == f"messages[0].content[{place}]"
    assert f"takes no {kind} input" in answer.error["message"]


@pytest.mark.parametrize("over", [0, 1])
def test_files_may_be_as_large_as_their_limit_and_no_larger(module: ScriptedModule, tmp_path: Path, over: int) -> None:
    """A video comes from a folder of the machine: its file is no bytes of a request's."""
    folder = tmp_path / "media"
    folder.mkdir()
    clip, large = encoded_video(20), folder / "clip.mp4"
    large.write_bytes(clip + (VIDEO_BYTES_MAX - len(clip) + over).to_bytes(4, "big") + b"free")
    os.truncate(large, VIDEO_BYTES_MAX + over)
    png = picture(4, 4)
    parts = {
        "image": {"type": "image_url", "image_url": {"url": data_url(png.ljust(IMAGE_BYTES_MAX + over), "image/png")}},
        "audio": sound(wav((AUDIO_BYTES_MAX - 44) // 2).ljust(AUDIO_BYTES_MAX + over)),
        "video": {"type": "video_url", "video_url": {"url": large.as_uri()}},
    }
    media = MediaSettings(local_root=folder)
    for kind, part in parts.items():
        answer = asked(tmp_path / kind, OMNI, part, media=media)
        assert answer.status == (400 if over else 200), (kind, answer.body[:300])
        if over:
            assert answer.error["param"].startswith("messages[0].content[0]")
            assert "MiB" in answer.error["message"] or "bytes" in answer.error["message"]


@pytest.mark.parametrize(("frame_count", "expected"), [(SAMPLED_FRAMES_MAX - 2, -2), (SAMPLED_FRAMES_MAX + 60, 0)])
def test_no_more_frames_are_looked_at_than_their_limit(
    module: ScriptedModule, tmp_path: Path, frame_count: int, expected: int
) -> None:
    part = video(encoded_video(frame_count, rate=2))
    answer = asked(tmp_path, OMNI, part, max_image_tokens=16 * 1024, max_input_len=20_000, max_kv_cache_capacity=24_000)
    assert answer.status == 200, answer.body
    assert [each.frames for each in seen(module)] == [SAMPLED_FRAMES_MAX + expected]


@pytest.mark.parametrize("over", [0, 1])
def test_so_many_parts_a_request_may_have(module: ScriptedModule, tmp_path: Path, over: int) -> None:
    half = MEDIA_PARTS_MAX // 2
    answer = asked(tmp_path, OMNI, [image(4)] * half, [image(4)] * (half + over))
    assert answer.status == (400 if over else 200)
    if not over:
        assert len(seen(module)) == MEDIA_PARTS_MAX
