"""LLM: a text model in this process, with the names and rules of NVIDIA's Python API."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from edgellm.engines.progress import ProgressCallback, ignore_progress
from edgellm.errors import (
    AdmissionError,
    ClosedError,
    ConfigError,
    RequestError,
)
from edgellm.media.media_input import MediaInput
from edgellm.parsing.answer_parser import NONE
from edgellm.parsing.output_style import OutputStyle, check_parser_names
from edgellm.runtime.answer_plan import AnswerPlan, plan_answer
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.batch import generate_all
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.direct_admission import DirectAdmission
from edgellm.runtime.generation import ChatPrompt, GenerationRequest, SpeechPrompt, SpokenOutput
from edgellm.runtime.http_serving import OpenModel
from edgellm.runtime.llm_options import (
    DEFAULT_ENGINE_CACHE_GB,
    DEFAULT_PORT,
    DEFAULT_QUEUE_TIMEOUT_SECONDS,
    DEFAULT_QUEUED_REQUESTS,
    DEFAULT_READ_ONLY_ENGINE_DIRS,
    BuildOptions,
    ContextCacheConfig,
    LLMOptions,
    SpeculativeConfig,
    path_text,
)
from edgellm.runtime.loaded_model import BundleLayout, LoadedModel
from edgellm.runtime.loader import load
from edgellm.runtime.message_media import media_of_messages
from edgellm.runtime.outputs import CompletionOutput
from edgellm.runtime.parsed_output import parsed_output
from edgellm.runtime.running import OnReleased, RunningGeneration
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.speech_front_end import check_speech_prompt, check_spoken_output
from edgellm.runtime.stream import GenerationStream, SpokenStream

Messages = Sequence[Mapping[str, Any]]
Started = TypeVar("Started")

# Callers beyond the running sequences that may wait inside the engine, so that a free place is filled at once.
IN_FLIGHT_WAITING_PERMITS = 16
BLOCKING_PERMITS = 1


class LLM(OpenModel):
    """Loads on construction and serves until ``close()``. Every method may be called from any thread.

    ``model`` is a catalogue name, a GGUF file or a safetensors folder. Defaults of None depend on the runtime: in
    flight batching (with 4 sequences) and context reuse are on for the native one and opt-in for TensorRT.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        cache_dir: str | os.PathLike[str] = "",
        runtime: str = "auto",
        executor: str = "auto",
        threads: int | None = None,
        quantisation: str = "auto",
        max_input_len: int | None = None,
        max_batch_size: int | None = None,
        max_kv_cache_capacity: int | None = None,
        enable_in_flight_batching: bool | None = None,
        enable_context_reuse: bool | None = None,
        context_cache_max_records: int = 1024,
        context_cache_recurrent_snapshot_pool_bytes: int = 0,
        context_cache_partial_kv_snapshot_pool_bytes: int = 0,
        context_cache_config: ContextCacheConfig | Mapping[str, Any] | None = None,
        build_options: BuildOptions | Mapping[str, Any] | None = None,
        speculative_config: SpeculativeConfig | Mapping[str, Any] | str | None = None,
        max_lora_rank: int | None = None,
        reduced_vocab_dir: str | os.PathLike[str] | None = None,
        draft_top_k: int | None = None,
        draft_step: int | None = None,
        verify_tree_size: int | None = None,
        max_verify_tree_size: int | None = None,
        max_draft_tree_size: int | None = None,
        max_image_tokens: int | None = None,
        max_image_tokens_per_image: int | None = None,
        engine_cache_max_size_gb: float = DEFAULT_ENGINE_CACHE_GB,
        clear_engine_cache: bool = False,
        build_on_start: bool = True,
        read_only_engine_dirs: Sequence[str] = DEFAULT_READ_ONLY_ENGINE_DIRS,
        on_progress: ProgressCallback = ignore_progress,
    ) -> None:
        context_cache = ContextCacheConfig(
            enable_context_reuse,
            context_cache_max_records,
            context_cache_recurrent_snapshot_pool_bytes,
            context_cache_partial_kv_snapshot_pool_bytes,
        )
        if context_cache_config is not None:
            context_cache = ContextCacheConfig.parse(context_cache_config)
        options = LLMOptions(
            model=path_text(model),
            cache_dir=path_text(cache_dir),
            runtime=runtime,
            executor=executor,
            threads=threads,
            quantisation=quantisation,
            max_input_len=max_input_len,
            max_batch_size=max_batch_size,
            max_kv_cache_capacity=max_kv_cache_capacity,
            enable_in_flight_batching=enable_in_flight_batching,
            context_cache=context_cache,
            speculative=SpeculativeConfig() if not speculative_config else SpeculativeConfig.parse(speculative_config),
            max_image_tokens=max_image_tokens,
            max_image_tokens_per_image=max_image_tokens_per_image,
            max_lora_rank=max_lora_rank,
            reduced_vocab_dir=path_text(reduced_vocab_dir),
            draft_top_k=draft_top_k,
            draft_step=draft_step,
            verify_tree_size=verify_tree_size,
            max_verify_tree_size=max_verify_tree_size,
            max_draft_tree_size=max_draft_tree_size,
            engine_cache_max_size_gb=engine_cache_max_size_gb,
            clear_engine_cache=clear_engine_cache,
            build_on_start=build_on_start,
            read_only_engine_dirs=tuple(read_only_engine_dirs),
        )
        if build_options is not None:
            options = options.with_build_options(BuildOptions.parse(build_options))
        self._use(load(options, on_progress), options.cache_dir)

    @classmethod
    def over(cls, loaded: LoadedModel, cache_dir: str = "") -> Self:
        """Give an LLM over a model that is loaded already."""
        llm = cls.__new__(cls)
        llm._use(loaded, cache_dir)
        return llm

    def _use(self, loaded: LoadedModel, cache_dir: str) -> None:
        self._loaded = loaded
        self._cache_dir = cache_dir
        self._closing = threading.RLock()
        self._closed = False
        capabilities = loaded.capabilities
        permits = BLOCKING_PERMITS
        if capabilities.in_flight_batching:
            permits = capabilities.max_batch_size + IN_FLIGHT_WAITING_PERMITS
        self._admission = DirectAdmission(permits)

    # What it is

    @property
    def model_dir(self) -> str:
        """The checkpoint: a folder, or a GGUF file."""
        return str(self._loaded.model_path)

    @property
    def model_id(self) -> str:
        """The name clients see: never a path."""
        return self._loaded.model_id

    @property
    def bundle_dir(self) -> str:
        return self._loaded.layout.root

    @property
    def cache_dir(self) -> str:
        return self._cache_dir

    @property
    def max_batch_size(self) -> int:
        return self._loaded.capabilities.max_batch_size

    @property
    def bundle_layout(self) -> BundleLayout:
        return self._loaded.layout

    @property
    def takes_media(self) -> bool:
        """Parts of messages may be images, or whatever else its capabilities say."""
        return len(self._loaded.capabilities.input_modalities) > 1

    @property
    def video_capable(self) -> bool:
        return "video" in self._loaded.capabilities.input_modalities

    @property
    def speech_available(self) -> bool:
        return "audio" in self._loaded.capabilities.output_modalities

    @property
    def has_draft_model(self) -> bool:
        return self._loaded.has_draft_model and not self._loaded.capabilities.in_flight_batching

    @property
    def context_cache_enabled(self) -> bool:
        return self._loaded.capabilities.context_cache

    @property
    def runtime_kind(self) -> str:
        return "chat"

    @property
    def capabilities(self) -> Capabilities:
        return self._loaded.capabilities

    @property
    def loaded(self) -> LoadedModel:
        """What a lane drives directly, with an admission of its own."""
        return self._loaded

    def get_scheduling_metrics(self) -> Mapping[str, int] | None:
        """Give the engine's counters; None on the blocking path, which has no scheduler."""
        self._ensure_open()
        return self._loaded.driver.scheduling_metrics()

    def get_context_cache_metrics(self) -> Any | None:
        """Give the contract's ContextCacheMetrics as last known; None when reuse is off or not counted here."""
        self._ensure_open()
        return self._loaded.driver.context_cache_metrics()

    # Generation

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[Messages],
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        tool_parser: str = "auto",
        reasoning_parser: str = "none",
    ) -> list[CompletionOutput]:
        """Give one output a prompt, in order. A prompt is a user's message, or a list of messages, whose parts may be
        images for a model that takes some: ``{"type": "image", "image": …}`` with a data URL or a file.

        ``tool_choice`` is auto, required, none, or names a function; a call that must be made is enforced by grammar.
        Parsers (``auto`` goes by the model) put calls into ``tool_calls``, in OpenAI form, and reasoning into
        ``reasoning``; ``text`` is the rest. ``none`` leaves everything in the text. Raises RequestError.
        """
        self._ensure_open()
        check_parser_names(reasoning_parser=reasoning_parser, tool_parser=tool_parser)
        style = self._loaded.capabilities.output_style.chosen(reasoning_parser, tool_parser)
        plans = [
            self._plan(messages, sampling_params, tools, tool_choice, style) for messages in _conversations(prompts)
        ]
        encoded = [self._encoded(plan, media) for plan, media in plans]
        if not encoded:
            return []
        # Twice the batch keeps a next prompt waiting inside the engine wherever one ends.
        concurrency = min(self._admission.permits, 2 * self.max_batch_size)
        try:
            outputs = generate_all(encoded, self._start, self._admission.wake, concurrency=concurrency)
        except RequestError as error:
            raise plans[0][0].guide_paths.as_asked(error) from None  # all plans have the same tools and guide
        return [parsed_output(output, plan.answer_format) for output, (plan, _) in zip(outputs, plans, strict=True)]

    def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        tool_parser: str = "auto",
        reasoning_parser: str = "none",
    ) -> CompletionOutput:
        """Give the answer to one conversation."""
        if not isinstance(messages, (list, tuple)):
            raise TypeError(f"chat takes a list of messages, not {type(messages).__name__}")
        return self.generate(
            [messages],
            sampling_params,
            tools=tools,
            tool_choice=tool_choice,
            tool_parser=tool_parser,
            reasoning_parser=reasoning_parser,
        )[0]

    def generate_stream(
        self,
        messages: Messages | str,
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
    ) -> GenerationStream:
        """Give the deltas of one answer, as raw text. Nothing happens before the first ``next()``."""

        def start(given_up: Callable[[], bool]) -> RunningGeneration:
            self._ensure_open()
            conversation = _conversations(messages)[0] if isinstance(messages, str) else messages
            style = self._loaded.capabilities.output_style.chosen(reasoning_parser=NONE)
            plan, media = self._plan(conversation, sampling_params, tools, tool_choice, style)
            try:
                return self._start(self._encoded(plan, media), given_up)
            except RequestError as error:
                raise plan.guide_paths.as_asked(error) from None

        return GenerationStream(start, self._admission.wake)

    def generate_stream_with_audio(
        self,
        messages: Messages | str,
        sampling_params: SamplingParams | None = None,
        *,
        audio_params: AudioParams | None = None,
    ) -> SpokenStream:
        """Give the deltas of one answer that is also said: text, and ``audio_bytes`` as samples of 16 bits, mono, at 24
        kHz, each kind in its order. The finished delta ends the text; sound may follow it.

        Raises ValueError at the call for a model that does not speak, or an unknown voice.
        """
        spoken = self._spoken(audio_params or AudioParams())

        def start(given_up: Callable[[], bool]) -> RunningGeneration:
            self._ensure_open()
            conversation = _conversations(messages)[0] if isinstance(messages, str) else messages
            style = self._loaded.capabilities.output_style.chosen(reasoning_parser=NONE)
            plan, media = self._plan(conversation, sampling_params, None, None, style)
            params = replace(plan.params, skip_special_tokens=True)
            request = GenerationRequest(plan.prompt, params, media=media, spoken=spoken)
            try:
                return self._start(self._loaded.encode(request), given_up)
            except RequestError as error:
                raise plan.guide_paths.as_asked(error) from None

        return SpokenStream(start, self._admission.wake, has_text=True)

    def generate_speech_stream(self, text: str, audio_params: AudioParams | None = None) -> SpokenStream:
        """Say ``text``, of which no answer is made: each delta has ``audio_bytes``, as above. No delta is finished.

        Raises ValueError at the call for a model that does not speak, or what it cannot say.
        """
        spoken = self._spoken(audio_params or AudioParams())
        prompt = SpeechPrompt(text, spoken.voice)
        check_speech_prompt(prompt, self._loaded.capabilities.speech)

        def start(given_up: Callable[[], bool]) -> RunningGeneration:
            self._ensure_open()
            speech = self._loaded.require_speech()
            return self._admitted(lambda release: speech.start_speech(prompt, spoken.params, release), given_up)

        return SpokenStream(start, self._admission.wake, has_text=False)

    def list_voices(self) -> list[str]:
        """Names that ``AudioParams.voice`` takes, sorted; none where the model does not speak. Raises RuntimeError once
        it is closed.
        """
        self._ensure_open()
        return sorted(voice.name for voice in self._loaded.capabilities.speech.voices)

    # Serving and the end

    def serve(
        self,
        host: str | None = None,
        port: int = DEFAULT_PORT,
        *,
        served_model_name: str = "",
        api_key: str = "",
        reasoning_parser: str = "auto",
        tool_call_parser: str = "auto",
        enable_auto_tool_choice: bool = True,
        max_queued_requests: int = DEFAULT_QUEUED_REQUESTS,
        queue_timeout: float = DEFAULT_QUEUE_TIMEOUT_SECONDS,
        allowed_local_media_path: str | None = None,
    ) -> None:
        """Serve this model over HTTP until interrupted, then close it. Binds 127.0.0.1 unless there is a key."""
        self._ensure_open()
        check_parser_names(reasoning_parser=reasoning_parser, tool_call_parser=tool_call_parser)
        if allowed_local_media_path and not self.takes_media:
            raise ConfigError("allowed_local_media_path: this model takes no media")
        self._serve(
            served_model_name=served_model_name,
            host=host,
            port=port,
            api_key=api_key,
            reasoning_parser=reasoning_parser,
            tool_call_parser=tool_call_parser,
            enable_auto_tool_choice=enable_auto_tool_choice,
            max_queued_requests=max_queued_requests,
            queue_timeout_seconds=queue_timeout,
            local_media_root=allowed_local_media_path,
        )

    def close(self) -> None:
        """Let what runs end, then drop the runtime once. Idempotent; waits without limit."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._admission.close()
            self._loaded.driver.drain()
            self._admission.wait_until_free()
            self._loaded.close()

    def _ensure_open(self) -> None:
        if self._closed:
            raise ClosedError("this model was closed")

    def _plan(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None,
        tools: Sequence[Mapping[str, Any]] | None,
        tool_choice: str | Mapping[str, Any] | None,
        style: OutputStyle,
    ) -> tuple[AnswerPlan, Sequence[MediaInput]]:
        params = SamplingParams() if sampling_params is None else sampling_params
        if not isinstance(params, SamplingParams):
            raise TypeError(f"sampling_params must be SamplingParams, not {type(params).__name__}")
        capabilities = self._loaded.capabilities
        messages, media = media_of_messages(messages, capabilities.input_modalities)
        prompt = ChatPrompt(messages, tools=tools or (), tool_choice="auto" if tool_choice is None else tool_choice)
        return plan_answer(prompt, params, capabilities, style), media

    def _encoded(self, plan: AnswerPlan, media: Sequence[MediaInput]) -> GenerationRequest:
        return self._loaded.encode(GenerationRequest(plan.prompt, plan.params, media=media))

    def _start(self, request: GenerationRequest, given_up: Callable[[], bool]) -> RunningGeneration:
        return self._admitted(lambda release: self._loaded.start(request, release), given_up)

    def _admitted(self, start: Callable[[OnReleased], Started], given_up: Callable[[], bool]) -> Started:
        self._admission.acquire(given_up)
        try:
            self._ensure_open()
            return start(self._admission.release)
        except AdmissionError:
            self._admission.release()
            self._ensure_open()
            raise
        except BaseException:
            self._admission.release()
            raise

    def _spoken(self, params: AudioParams) -> SpokenOutput:
        self._ensure_open()
        speech = self._loaded.require_speech().speech
        spoken = SpokenOutput(speech.default_voice if params.voice is None else params.voice, params=params)
        check_spoken_output(spoken, speech)
        return spoken


def _conversations(prompts: object) -> list[Messages]:
    if isinstance(prompts, str):
        prompts = [prompts]
    if not isinstance(prompts, (list, tuple)):
        raise TypeError(f"prompts must be a string or a list, not {type(prompts).__name__}")
    conversations: list[Messages] = []
    for prompt in prompts:
        if isinstance(prompt, str):
            conversations.append([{"role": "user", "content": prompt}])
        elif isinstance(prompt, (list, tuple)):
            conversations.append(prompt)
        else:
            raise TypeError(
                f"each prompt must be a string or a list of messages, not {type(prompt).__name__}; "
                "chat() takes one list of messages"
            )
    return conversations
