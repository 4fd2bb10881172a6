"""A runtime module that follows a script: the contract's behaviours, with endings that a real one never gives.

Value objects refuse unknown attributes, getters of lists and maps give copies, enums are no ints, a cancelled channel
is neither finished nor has it a reason, and waits on it return at once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.unit.runtime import scripted_values
from tests.unit.runtime.scripted_sound import DEADLINE_SECONDS as DEADLINE_SECONDS
from tests.unit.runtime.scripted_sound import AudioStreamChannel, Speech, chunks
from tests.unit.runtime.scripted_values import (
    ContextCacheCommitPolicy as ContextCacheCommitPolicy,
)
from tests.unit.runtime.scripted_values import (
    ContextCacheConfig as ContextCacheConfig,
)
from tests.unit.runtime.scripted_values import (
    ContextCacheLookupPolicy as ContextCacheLookupPolicy,
)
from tests.unit.runtime.scripted_values import (
    ExtendedRequest as ExtendedRequest,
)
from tests.unit.runtime.scripted_values import (
    FinishReason as FinishReason,
)
from tests.unit.runtime.scripted_values import (
    GuidedDecodingParams as GuidedDecodingParams,
)
from tests.unit.runtime.scripted_values import (
    GuideType as GuideType,
)
from tests.unit.runtime.scripted_values import (
    LLMGenerationRequest as LLMGenerationRequest,
)
from tests.unit.runtime.scripted_values import (
    Message as Message,
)
from tests.unit.runtime.scripted_values import (
    MessageContent as MessageContent,
)
from tests.unit.runtime.scripted_values import (
    MessageToolCall as MessageToolCall,
)
from tests.unit.runtime.scripted_values import (
    PlainRequest as PlainRequest,
)
from tests.unit.runtime.scripted_values import (
    Record as Record,
)
from tests.unit.runtime.scripted_values import (
    RequestExtensions as RequestExtensions,
)
from tests.unit.runtime.scripted_values import (
    ShutdownMode as ShutdownMode,
)
from tests.unit.runtime.scripted_values import (
    SubmitError as SubmitError,
)
from tests.unit.runtime.scripted_values import (
    ToolChoice as ToolChoice,
)
from tests.unit.runtime.scripted_values import (
    ToolChoiceMode as ToolChoiceMode,
)
from tests.unit.runtime.scripted_values import (
    ToolDefinition as ToolDefinition,
)


@dataclass(frozen=True)
class LogprobEntry:
    token_id: int
    logprob: float
    piece: bytes


@dataclass(frozen=True)
class StreamChunk:
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    prompt_token_count: int = -1
    finished: bool = False
    reason: FinishReason = FinishReason.NOT_FINISHED
    logprobs: list[list[LogprobEntry]] = field(default_factory=list)


@dataclass(frozen=True)
class LLMGenerationResponse:
    output_ids: list[list[int]]
    output_texts: list[str]
    finish_reasons: list[FinishReason]
    prompt_token_counts: list[int]
    logprobs: list[list[list[LogprobEntry]]] = field(default_factory=list)


class StreamSignal:
    """The extension that wakes an event loop by one descriptor for many channels."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._raising = threading.Lock()
        self._raised = False

    def fileno(self) -> int:
        return self._descriptor

    def raise_(self) -> None:
        with self._raising:
            if not self._raised:
                self._raised = True
                os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        with self._raising:
            if self._raised:
                self._raised = False
                os.eventfd_read(self._descriptor)

    def __del__(self) -> None:
        os.close(self._descriptor)


class StreamChannel:
    signal: StreamSignal | None = None

    def __init__(self) -> None:
        self._chunks: deque[StreamChunk] = deque()
        self._changed = threading.Condition()
        self._finished = False
        self._cancelled = False
        self.skip_special_tokens = True
        self.cancel_calls = 0

    @classmethod
    def create(cls) -> StreamChannel:
        return cls()

    def set_skip_special_tokens(self, skip: bool) -> None:
        self.skip_special_tokens = skip

    def set_signal(self, signal: StreamSignal) -> None:
        self.signal = signal
        signal.raise_()

    def raise_signal(self) -> None:
        if self.signal is not None:
            self.signal.raise_()

    def push(self, chunk: StreamChunk) -> None:
        with self._changed:
            if self._cancelled:
                return
            self._chunks.append(chunk)
            self._finished = self._finished or chunk.finished
            self._changed.notify_all()
        self.raise_signal()

    def try_pop(self) -> StreamChunk | None:
        with self._changed:
            return self._chunks.popleft() if self._chunks and not self._cancelled else None

    def wait_pop(self, timeout_ms: int) -> StreamChunk | None:
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._finished or self._cancelled, timeout_ms / 1000)
        return self.try_pop()

    def is_finished(self) -> bool:
        return self._finished and not self._cancelled

    def is_cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        with self._changed:
            self.cancel_calls += 1
            self._cancelled = True
            self._changed.notify_all()


@dataclass
class Script:
    """What one request does. ``gate`` holds it before its last text; ``terminal`` False ends it without a word."""

    texts: Sequence[str] = ("one ", "two ", "three")
    reason: FinishReason = FinishReason.END_ID
    terminal: bool = True
    error: Exception | None = None
    submit_error: Exception | None = None
    prompt_tokens: int = 7
    gate: threading.Event | None = None
    end_gate: threading.Event | None = None
    logprobs: list[list[LogprobEntry]] = field(default_factory=list)

    def chunks(self) -> list[StreamChunk]:
        made = [
            StreamChunk(text, [index], -1 if index else self.prompt_tokens) for index, text in enumerate(self.texts)
        ]
        return made

    def play(self, channel: StreamChannel) -> LLMGenerationResponse:
        said: list[StreamChunk] = []
        for index, chunk in enumerate(self.chunks()):
            if self.gate is not None and index == len(self.texts) - 1:
                while not self.gate.wait(0.005):
                    if channel.is_cancelled():
                        return self.response(said, FinishReason.CANCELLED)
            if channel.is_cancelled():
                return self.response(said, FinishReason.CANCELLED)
            channel.push(chunk)
            said.append(chunk)
        if self.terminal:
            channel.push(StreamChunk("", [], self.prompt_tokens, True, self.reason, self.logprobs))
        if self.end_gate is not None:
            assert self.end_gate.wait(DEADLINE_SECONDS)
        if self.error is not None:
            raise self.error
        return self.response(said, self.reason)

    def response(self, said: Sequence[StreamChunk], reason: FinishReason) -> LLMGenerationResponse:
        return LLMGenerationResponse(
            output_ids=[[token_id for chunk in said for token_id in chunk.token_ids]],
            output_texts=["".join(chunk.text for chunk in said)],
            finish_reasons=[reason],
            prompt_token_counts=[self.prompt_tokens],
            logprobs=[self.logprobs] if self.logprobs else [],
        )


class RequestHandle:
    """Its result can be had once, as a future's."""

    def __init__(self, script: Script, channel: StreamChannel, request_id: int) -> None:
        self.id = request_id
        self.channel = channel
        self.cancel_calls = 0
        self.get_calls = 0
        self._script = script
        self._response: LLMGenerationResponse | None = None
        self._error: Exception | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            response = self._script.play(self.channel)
            if response.finish_reasons == [FinishReason.CANCELLED]:
                raise RuntimeError("request was cancelled")  # noqa: TRY301
            self._response = response
        except Exception as error:
            self._error = error
        self._done.set()
        self.channel.raise_signal()

    def ready(self) -> bool:
        return self._done.is_set()

    def cancel(self) -> None:
        self.cancel_calls += 1
        self.channel.cancel()

    def get(self) -> LLMGenerationResponse:
        self.get_calls += 1
        assert self.get_calls == 1, "get() was called twice"
        self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._response is not None
        return self._response


class RequestEngine:
    def __init__(self, module: ScriptedModule, **arguments: Any) -> None:
        self._module = module
        self.arguments = arguments
        self.handles: list[RequestHandle] = []
        self.shutdown_modes: list[ShutdownMode] = []
        self.steps_completed = 5

    queued = 2
    resident = 1

    def submit(self, request: LLMGenerationRequest) -> RequestHandle:
        if self.shutdown_modes:
            raise SubmitError("the engine is shutting down")
        script = self._module.script(request)
        self._module.requests.append(request)
        if script.submit_error is not None:
            raise script.submit_error
        handle = RequestHandle(script, request.stream_channels[0], len(self.handles))
        self.handles.append(handle)
        handle.start()
        return handle

    def shutdown(self, mode: ShutdownMode) -> None:
        self.shutdown_modes.append(mode)
        for handle in self.handles:
            handle._done.wait()

    def count_prompt_tokens(self, request: LLMGenerationRequest) -> list[int]:
        self._module.counted.append(request)
        return [self._module.prompt_tokens]

    def metrics(self) -> Any:
        names = [
            "submitted",
            "refused",
            "stalls_incompatible",
            "stalls_guided",
            "stalls_founder_only",
            "stalls_no_capacity",
            "admitted_mid_flight",
            "completed",
            "cancelled",
            "failed",
            "queue_latency_total_us",
            "queue_latency_max_us",
            "queue_latency_count",
        ]
        return SimpleNamespace(**dict.fromkeys(names, 0) | self._module.engine_metrics)


class LLMRuntime:
    def __init__(self, module: ScriptedModule, **arguments: Any) -> None:
        self._module = module
        self.arguments = arguments
        self.captured_graphs = 0
        self.active = 0
        self.most_active = 0
        self.omni: Sequence[str] = ()
        self.spoken: list[tuple[Any, Any]] = []

    def load_omni(
        self,
        talker_engine_dir: str,
        code_predictor_engine_dir: str,
        code2wav_engine_dir: str,
        tokenizer_dir: str,
        checkpoint_dir: str = "",
    ) -> None:
        self.omni = (talker_engine_dir, code_predictor_engine_dir, code2wav_engine_dir, tokenizer_dir, checkpoint_dir)

    def get_speaker_names(self) -> list[str]:
        return list(self._module.names)

    def handle_request_streaming_audio(
        self, request: LLMGenerationRequest, audio_channel: AudioStreamChannel, params: scripted_values.OmniAudioParams
    ) -> LLMGenerationResponse:
        """The text first, as far as the script lets it come, and the sound beside it."""
        self.spoken.append((request, params))
        saying = threading.Thread(target=self._module.speech, args=(audio_channel,))
        saying.start()
        try:
            return self.handle_request(request)
        finally:
            saying.join()

    def handle_request_tts(
        self, text: str, params: scripted_values.OmniAudioParams, audio_channel: AudioStreamChannel
    ) -> int:
        self.spoken.append((text, params))
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            return self._module.speech(audio_channel)
        finally:
            self.active -= 1

    def capture_decoding_cuda_graph(self) -> bool:
        self.captured_graphs += 1
        return True

    def handle_request(self, request: LLMGenerationRequest) -> LLMGenerationResponse:
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            script = self._module.script(request)
            self._module.requests.append(request)
            if script.submit_error is not None:
                raise script.submit_error
            return script.play(request.stream_channels[0])
        finally:
            self.active -= 1

    def count_prompt_tokens(self, request: LLMGenerationRequest) -> list[int]:
        raise AssertionError("not safe beside handle_request")

    def get_context_cache_metrics(self) -> Any:
        return self._module.next_cache_metrics()


class ScriptedModule:
    """``extensions`` False is a module like NVIDIA's, without signals; the scripts of the tests go into ``script``."""

    FinishReason = FinishReason
    GuideType = GuideType
    ToolChoiceMode = ToolChoiceMode
    ShutdownMode = ShutdownMode
    ContextCacheLookupPolicy = ContextCacheLookupPolicy
    ContextCacheCommitPolicy = ContextCacheCommitPolicy
    SubmitError = SubmitError
    Message = Message
    MessageContent = MessageContent
    MessageToolCall = MessageToolCall
    ToolDefinition = ToolDefinition
    ToolChoice = ToolChoice
    GuidedDecodingParams = GuidedDecodingParams
    LLMGenerationRequest = LLMGenerationRequest
    ContextCacheConfig = ContextCacheConfig
    StreamChannel = StreamChannel
    AudioStreamChannel = AudioStreamChannel
    OmniAudioParams = scripted_values.OmniAudioParams
    AudioData = scripted_values.AudioData
    ImageData = scripted_values.ImageData
    load_audio_buffer_from_bytes = staticmethod(scripted_values.load_audio_buffer_from_bytes)
    load_image_from_bytes = staticmethod(scripted_values.load_image_from_bytes)
    load_video_from_array = staticmethod(scripted_values.load_video_from_array)

    def __init__(self, *, extensions: bool = True, signals: bool = True) -> None:
        self.Request = ExtendedRequest if extensions else PlainRequest
        if extensions and signals:
            self.StreamSignal = StreamSignal
        self.script: Callable[[LLMGenerationRequest], Script] = lambda _: Script()
        self.requests: list[LLMGenerationRequest] = []
        self.counted: list[LLMGenerationRequest] = []
        self.prompt_tokens = 7
        self.engine_metrics: dict[str, int] = {}
        self.cache_metrics: deque[Any] = deque()
        self.engines: list[RequestEngine] = []
        self.runtimes: list[LLMRuntime] = []
        self.speech: Speech = chunks(b"ab", b"cd")
        self.names: Sequence[str] = ("vivian", "eric")

    def RequestEngine(self, *positional: Any, **named: Any) -> RequestEngine:
        engine = RequestEngine(self, positional=positional, **named)
        self.engines.append(engine)
        return engine

    def LLMRuntime(self, *positional: Any, **named: Any) -> LLMRuntime:
        runtime = LLMRuntime(self, positional=positional, **named)
        self.runtimes.append(runtime)
        return runtime

    def next_cache_metrics(self) -> Any:
        return self.cache_metrics.popleft() if len(self.cache_metrics) > 1 else self.cache_metrics[0]
