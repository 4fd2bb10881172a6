"""SequentialLane: requests take turns in one thread, end when they are cancelled, and all of them when it closes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.unit.serving.scripted_lane import capabilities

from edgellm.errors import EdgeLLMError, GenerationError, RequestCancelledError, RequestError
from edgellm.runtime.capabilities import Capabilities, Speech, Voice
from edgellm.runtime.generation import GenerationRequest, SpeechPrompt
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.request_encoder import RequestEncoder
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.speech_front_end import SpeechFrontEnd, speech_prompt_of
from edgellm.serving.sequential_lane import SequentialLane

SPEECH = Speech((Voice("joe"),))
PARTS = 6


class Work:
    def __init__(self, model: Model, text: str, is_cancelled: Callable[[], bool]) -> None:
        self._model = model
        self._text = text
        self._is_cancelled = is_cancelled

    def check(self) -> None:
        self._model.note("check")
        if self._text == "wrong":
            raise RequestError("input is wrong.", param="input")

    def deltas(self) -> Iterator[StreamDelta]:
        for number in range(PARTS):
            self._model.gate.acquire()
            self._model.note(f"{self._text}{number}")
            if self._text == "broken" and number == 1:
                raise ZeroDivisionError
            if self._is_cancelled():
                return
            yield StreamDelta(audio_bytes=b"x", audio_frames=1)
        yield StreamDelta(finished=True, finish_reason="stop")

    def close(self) -> None:
        self._model.note("close")


class Model:
    failure = "The text could not be spoken."

    def __init__(self) -> None:
        self.encoder = RequestEncoder(self.capabilities, SpeechFrontEnd(SPEECH))
        self.gate = threading.Semaphore(0)  # a test lets parts be made
        self.noted: list[str] = []
        self.threads: set[int] = set()

    @property
    def capabilities(self) -> Capabilities:
        return capabilities(speech=SPEECH, output_modalities=("audio",))

    def work(self, request: GenerationRequest, is_cancelled: Callable[[], bool]) -> Work:
        return Work(self, speech_prompt_of(request).text, is_cancelled)

    def note(self, what: str) -> None:
        self.noted.append(what)
        self.threads.add(threading.get_ident())

    def close(self) -> None:
        self.noted.append("model closed")


class Receiver:
    def __init__(self) -> None:
        self.deltas: list[StreamDelta] = []
        self.end: asyncio.Future[EdgeLLMError | None] = asyncio.get_running_loop().create_future()

    def take(self, delta: StreamDelta) -> None:
        self.deltas.append(delta)

    def take_text(self, text: str, token_ids: list[int]) -> None:
        raise AssertionError("it makes no text")

    def ended(self, error: EdgeLLMError | None) -> None:
        self.end.set_result(error)


def request(text: str) -> GenerationRequest:
    return GenerationRequest(SpeechPrompt(text, "joe"), SamplingParams())


def test_two_requests_take_turns_in_one_thread() -> None:
    async def scenario() -> None:
        model = Model()
        lane = SequentialLane(model)
        receivers = [Receiver(), Receiver()]
        await lane.submit(request("a"), receivers[0])
        submitting = asyncio.create_task(lane.submit(request("b"), receivers[1]))
        await asyncio.sleep(0)  # its check waits behind the part that is being made
        model.gate.release()
        await submitting
        for _ in range(2 * PARTS):
            model.gate.release()
        assert [await receiver.end for receiver in receivers] == [None, None]
        parts = [noted for noted in model.noted if noted[0] in "ab"]
        turns = "".join(part[0] for part in parts).lstrip("a").rstrip("b")
        assert turns == "ba" * (len(turns) // 2)
        assert len(turns) >= 2 * (PARTS - 3)
        assert [len(receiver.deltas) for receiver in receivers] == [PARTS + 1] * 2
        assert len(model.threads) == 1
        await lane.close()
        assert model.noted[-1] == "model closed"

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_who_is_cancelled_ends_and_the_other_goes_on() -> None:
    async def scenario() -> None:
        model = Model()
        lane = SequentialLane(model)
        first, second = Receiver(), Receiver()
        running = await lane.submit(request("a"), first)
        running.cancel()
        model.gate.release()
        assert isinstance(await first.end, RequestCancelledError)
        assert first.deltas == []
        model.gate = threading.Semaphore(100)
        await lane.submit(request("b"), second)
        assert await second.end is None
        await lane.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_what_is_wrong_is_refused_and_what_breaks_is_told() -> None:
    async def scenario() -> None:
        model = Model()
        model.gate = threading.Semaphore(100)
        lane = SequentialLane(model)
        with pytest.raises(RequestError, match="input is wrong"):
            await lane.submit(request("wrong"), Receiver())
        broken = Receiver()
        await lane.submit(request("broken"), broken)
        error = await broken.end
        assert isinstance(error, GenerationError)
        assert str(error) == model.failure
        assert len(broken.deltas) == 1
        whole = Receiver()
        await lane.submit(request("b"), whole)
        assert await whole.end is None
        await lane.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_lane_that_closes_ends_all_that_runs() -> None:
    async def scenario() -> None:
        model = Model()
        lane = SequentialLane(model)
        receivers = [Receiver()]
        await lane.submit(request("a"), receivers[0])
        closing = asyncio.create_task(lane.close())
        await asyncio.sleep(0)
        for _ in range(PARTS):
            model.gate.release()
        await closing
        assert isinstance(await receivers[0].end, RequestCancelledError)
        assert model.noted[-2:] == ["close", "model closed"]

    asyncio.run(asyncio.wait_for(scenario(), 60))
