"""TranscriptionLane: a lane over a Transcriber of this process, one transcript at a time."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from edgellm.errors import EdgeLLMError, GenerationError, RequestCancelledError, UnsupportedParameterError
from edgellm.media.audio import check_audio
from edgellm.runtime.audio_front_end import check_audio_prompt
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import AudioPrompt, GenerationRequest
from edgellm.runtime.outputs import StreamDelta, TranscriptFacts
from edgellm.runtime.transcriber import Transcriber
from edgellm.serving.error_frames import error_frames
from edgellm.serving.lane import DeltaReceiver, LaneCounters

_log = logging.getLogger(__name__)


class TranscriptionLane:
    """Owns the transcriber: ``close()`` closes it."""

    def __init__(self, transcriber: Transcriber) -> None:
        self._transcriber = transcriber
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="edgellm-transcriber")
        self._running: set[_Transcript] = set()
        self._steps_completed = 0

    @property
    def name(self) -> str:
        return "0"  # the only one

    @property
    def capabilities(self) -> Capabilities:
        return self._transcriber.capabilities

    async def encode(self, request: GenerationRequest) -> GenerationRequest:
        _audio_of(request)
        return request

    async def count_tokens(self, request: GenerationRequest) -> int:
        raise _only_audio()

    async def submit(self, request: GenerationRequest, receiver: DeltaReceiver) -> _Transcript:
        """Returns once all of the file was decoded, to find out whether it can be."""
        transcript = _Transcript(self, request, receiver)
        self._running.add(transcript)
        loop = asyncio.get_running_loop()
        checking = loop.run_in_executor(self._thread, transcript.check)
        try:
            await asyncio.shield(checking)
        except BaseException:
            transcript.cancel()
            await asyncio.wait((checking,))
            self._running.discard(transcript)
            raise
        self._thread.submit(transcript.run, loop)
        return transcript

    def counters(self) -> LaneCounters:
        return LaneCounters(None, None, self._steps_completed)

    async def close(self) -> None:
        for transcript in list(self._running):
            transcript.cancel()
        await asyncio.to_thread(self._thread.shutdown)
        self._transcriber.close()

    # For its transcripts

    @property
    def transcriber(self) -> Transcriber:
        return self._transcriber

    def step(self) -> None:
        self._steps_completed += 1

    def released(self, transcript: _Transcript) -> None:
        self._running.discard(transcript)


class _Transcript:
    """One request. ``check`` and ``run`` are called on the lane's thread."""

    def __init__(self, lane: TranscriptionLane, request: GenerationRequest, receiver: DeltaReceiver) -> None:
        self._lane = lane
        self._prompt = _audio_of(request)
        self._temperature = request.params.temperature
        self._receiver = receiver
        self._cancelled = Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        check_audio_prompt(self._prompt, self._lane.capabilities.transcription)
        check_audio(self._prompt.audio, self._is_cancelled)

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        error: EdgeLLMError | None = None
        try:
            for said in self._lane.transcriber.transcribe(self._prompt, self._temperature, self._is_cancelled):
                if isinstance(said, TranscriptFacts):
                    delta = StreamDelta(finished=True, finish_reason="stop", transcript=said)
                else:
                    delta = StreamDelta(said.text, said.token_ids, segments=[said])
                loop.call_soon_threadsafe(self._receiver.take, delta)
            if self._cancelled.is_set():
                error = RequestCancelledError("the request was cancelled")
        except EdgeLLMError as raised:
            error = raised
        except Exception as raised:  # whoever waits has to hear of it
            _log.error("a transcript failed: %s", error_frames(raised))
            error = GenerationError("The audio could not be transcribed.")
        finally:
            self._prompt.audio.close()
        loop.call_soon_threadsafe(self._ended, error)

    def _is_cancelled(self) -> bool:
        """Asked at every frame that is decoded and after every segment: something goes on."""
        self._lane.step()
        return self._cancelled.is_set()

    def _ended(self, error: EdgeLLMError | None) -> None:
        self._lane.released(self)
        self._receiver.ended(error)


def _audio_of(request: GenerationRequest) -> AudioPrompt:
    if not isinstance(request.prompt, AudioPrompt):
        raise _only_audio()
    return request.prompt


def _only_audio() -> UnsupportedParameterError:
    return UnsupportedParameterError("model: this model transcribes speech and takes no text.", param="model")
