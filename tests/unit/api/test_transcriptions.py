"""POST /v1/audio/transcriptions as a stream: how it says that it failed."""

from __future__ import annotations

import pytest
from tests.unit.api.asgi_client import application, run
from tests.unit.serving.scripted_lane import ScriptedGeneration, ScriptedLane, say_words, spec_of, until

from edgellm.errors import WorkerFailedError
from edgellm.runtime.capabilities import Transcription
from edgellm.runtime.generation import AudioPrompt

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
