"""Images in the Python API: messages with data URLs and files, through a real vision model."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.models.tiny_vision import VISION_VARIANTS, write_vision_checkpoint

from edgellm.errors import RequestError, UnsupportedModalityError
from edgellm.runtime.llm import LLM
from edgellm.runtime.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=6)


def png(seed: int) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 256, (32, 40, 3), np.uint8)
    Image.fromarray(noise).save(file, "png")
    return file.getvalue()


def image(content: bytes) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


@pytest.fixture(scope="module", params=[True, False], ids=["in flight", "blocking"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = tmp_path_factory.mktemp("vision")
    checkpoint = write_vision_checkpoint(folder / "model", VISION_VARIANTS["smolvlm"])
    with LLM(checkpoint, cache_dir=folder / "cache", enable_in_flight_batching=request.param) as loaded:
        yield loaded


def test_an_image_is_seen_from_a_data_url_and_from_a_file(llm: LLM, tmp_path: Path) -> None:
    path = tmp_path / "a picture.png"
    path.write_bytes(png(1))
    inline = llm.chat(user(image(png(1)), "What?"), GREEDY)
    other = llm.chat(user(image(png(2)), "What?"), GREEDY)
    named = [llm.chat(user({"type": "image", "image": where}, "What?"), GREEDY) for where in (str(path), path.as_uri())]
    assert {each.text for each in (inline, *named)} == {inline.text}
    assert other.text != inline.text
    assert inline.prompt_tokens == other.prompt_tokens > llm.chat(user("What?"), GREEDY).prompt_tokens


def test_prompts_beside_each_other_keep_their_images(llm: LLM) -> None:
    prompts = [user(image(png(seed)), "What?") for seed in (1, 2, 3)]
    together = [output.text for output in llm.generate(prompts, GREEDY)]
    assert together == [llm.chat(prompt, GREEDY).text for prompt in prompts]


def test_a_stream_sees_it_too(llm: LLM) -> None:
    messages = user(image(png(1)), "What?")
    assert "".join(delta.text for delta in llm.generate_stream(messages, GREEDY)) == llm.chat(messages, GREEDY).text


@pytest.mark.parametrize(
    ("part", "kind", "param"),
    [
        ({"type": "input_audio", "input_audio": {}}, UnsupportedModalityError, "messages[0].content[1]"),
        ({"type": "image", "image": "https://example.com/a.png"}, RequestError, "messages[0].content[1].image"),
        ({"type": "image", "image": "/missing.png"}, RequestError, "messages[0].content[1].image"),
        ({"type": "image", "image": 5}, RequestError, "messages[0].content[1].image"),
        (image(b"no image"), RequestError, "messages[0].content[1].image_url.url"),
        (image(png(1)[:100]), RequestError, "messages[0].content[1]"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_wrong_is_named(llm: LLM, part: dict[str, Any], kind: type[RequestError], param: str) -> None:
    with pytest.raises(kind) as refused:
        llm.chat(user("What?", part), GREEDY)
    assert refused.value.param == param


def test_it_says_what_it_takes(llm: LLM) -> None:
    assert llm.takes_media
    assert not llm.video_capable
    assert llm.capabilities.input_modalities == ("text", "image")
