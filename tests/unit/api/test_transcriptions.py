"""POST /v1/audio/transcriptions: how a stream says that it failed, and models that know no times."""

from __future__ import annotations

import pytest
from tests.unit.api.asgi_client import Answer, application, run
from tests.unit.serving.scripted_lane import ScriptedGeneration, ScriptedLane, say_words, spec_of, until

from edgellm.errors import WorkerFailedError
from edgellm.runtime.capabilities import Transcription
from edgellm.runtime.generation import AudioPrompt
from edgellm.runtime.outputs import StreamDelta, TranscriptFacts

pytest.importorskip("python_multipart")

FORM = (
    b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nears\r\n'
    b'--x\r\ncontent-disposition: form-data; name="stream"\r\n\r\ntrue\r\n'
    b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--x--\r\n'
)


def fail(generation: ScriptedGeneration) -> None:
    assert isinstance(generation.request.prompt, AudioPrompt)
    generation.fail(WorkerFailedError("The model's worker failed."))


def test_a_failure_is_an_event_with_one_error_object() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("Hi"), transcription=Transcription(("en",)))
        async with application(specs=[spec_of(lane, name="ears", kind="asr")]) as (client, _):
            lane.script = lambda generation: generation.say("So")  # accepted, so that the stream has begun
            headers = [("content-type", "multipart/form-data; boundary=x")]
            exchange = client.start("POST", "/v1/audio/transcriptions", FORM, headers)
            await until(lambda: exchange.answer.status == 200)
            fail(lane.generations[-1])
            answer = await exchange.done()
            assert set(answer.events[-1]) == {"error"}
            assert answer.events[-1]["error"]["code"] == "worker_failed"

    run(scenario())


WITHOUT_TIMES = Transcription(("en", "de"), has_times=False)


def form(**fields: str) -> bytes:
    parts = "".join(
        f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {"model": "ears", **fields}.items()
    )
    file = '--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--x--\r\n'
    return f"{parts}{file}".encode()


def write_down(generation: ScriptedGeneration) -> None:
    for text in ("Good", " morning."):
        generation.give(StreamDelta(text, [1]))
    facts = TranscriptFacts("en", 2.5)
    generation.give(StreamDelta(finished=True, finish_reason="stop", transcript=facts))


def listening(body: bytes, path: str = "/v1/audio/transcriptions") -> tuple[Answer, list[ScriptedGeneration]]:
    answers: list[Answer] = []
    lane = ScriptedLane(write_down, transcription=WITHOUT_TIMES)

    async def scenario() -> None:
        async with application(specs=[spec_of(lane, name="ears", kind="asr")]) as (client, _):
            lane.generations.clear()  # that of the warm-up
            headers = [("content-type", "multipart/form-data; boundary=x")]
            answers.append(await client.start("POST", path, body, headers).done())

    run(scenario())
    return answers[0], lane.generations


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": "srt"},
        {"response_format": "vtt"},
        {"response_format": "verbose_json"},
        {"response_format": "verbose_json", "timestamp_granularities[]": "word"},
    ],
)
def test_times_that_a_model_does_not_know_are_refused_by_name(fields: dict[str, str]) -> None:
    answer, generations = listening(form(**fields))
    assert (answer.status, answer.error["code"], answer.error["param"]) == (
        400,
        "unsupported_parameter",
        "response_format",
    )
    assert "does not know when something was said" in answer.error["message"]
    assert generations == []


def test_a_model_that_writes_down_translates_nothing() -> None:
    answer, generations = listening(form(), "/v1/audio/translations")
    assert (answer.status, answer.error["param"], generations) == (400, "model", [])
    assert "translates nothing" in answer.error["message"]


def test_text_without_times_is_whole_or_streamed() -> None:
    answer, (generation,) = listening(form(language="DE", prompt="So", temperature="0.5"))
    assert answer.json == {"text": "Good morning.", "usage": {"type": "duration", "seconds": 2.5}}
    assert isinstance(generation.request.prompt, AudioPrompt)
    assert (generation.request.prompt.language, generation.request.prompt.context) == ("de", "So")
    assert generation.request.params.temperature == 0.5
    answer, _ = listening(form(response_format="text"))
    assert answer.body == b"Good morning.\n"
    answer, _ = listening(form(stream="true"))
    *pieces, done = answer.events
    assert "".join(piece["delta"] for piece in pieces) == done["text"] == "Good morning."
