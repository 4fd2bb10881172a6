"""The part of the runtime contract that the adapter uses, as types: NVIDIA's module and edgellm._native both fit.

Value objects (LLMGenerationRequest and what it holds) stay untyped: their fields are set by name, and the getters
of lists and maps give copies, so whole lists are assigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class StreamChunk(Protocol):
    """``reused_token_count`` and ``matched_stop`` are extensions: read them with ``getattr``."""

    @property
    def token_ids(self) -> list[int]: ...
    @property
    def text(self) -> str: ...
    @property
    def prompt_token_count(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    @property
    def reason(self) -> Any: ...
    @property
    def logprobs(self) -> list[list[Any]]: ...


class StreamSignal(Protocol):
    """Extension, found by ``hasattr`` on the module: one descriptor for many channels, readable once it was raised.

    A channel with ``set_signal(signal)`` raises it at once, with each chunk, and when the runtime has let go of the
    request.
    """

    def fileno(self) -> int: ...
    def clear(self) -> None:
        """Call before looking at the channels: what comes after is signalled again."""
        ...


class DeltaFrames(Protocol):
    """Extension: writes one stream's chunks as a worker's delta frames, each for one credit."""

    def take_credit(self) -> bool: ...
    def add_credit(self, deltas: int) -> None: ...


class FrameSocket(Protocol):
    """Extension, found by ``hasattr`` on the module and made of a descriptor: sends whole frames and never waits."""

    def fileno(self) -> int: ...
    def send(self, frame: bytes) -> None: ...
    def flush(self) -> bool:
        """Send what the kernel did not take before; False while something is left."""
        ...

    def kept_bytes(self) -> int: ...
    def delta_frames(self, stream: int, credit: int) -> DeltaFrames: ...


class StreamChannel(Protocol):
    """After ``cancel()`` it is neither finished nor has it a reason, and waits return None at once.

    ``set_signal``, ``forward_to`` and ``resume_forwarding`` are extensions.
    """

    def try_pop(self) -> StreamChunk | None: ...
    def wait_pop(self, timeout_ms: int) -> StreamChunk | None: ...
    def is_finished(self) -> bool: ...
    def is_cancelled(self) -> bool: ...
    def cancel(self) -> None: ...
    def set_skip_special_tokens(self, skip: bool, /) -> None: ...


class GenerationResponse(Protocol):
    """``reused_token_counts`` and ``matched_stops`` are extensions: read them with ``getattr``."""

    @property
    def output_ids(self) -> list[list[int]]: ...
    @property
    def output_texts(self) -> list[str]: ...
    @property
    def logprobs(self) -> list[list[list[Any]]]: ...
    @property
    def finish_reasons(self) -> list[Any]: ...
    @property
    def prompt_token_counts(self) -> list[int]: ...


class RequestHandle(Protocol):
    @property
    def id(self) -> int: ...
    def get(self) -> GenerationResponse: ...
    def ready(self) -> bool: ...
    def cancel(self) -> None: ...


class RequestEngine(Protocol):
    @property
    def queued(self) -> int: ...
    @property
    def resident(self) -> int: ...
    def submit(self, request: Any) -> RequestHandle: ...
    def shutdown(self, mode: Any) -> None: ...
    def metrics(self) -> Any: ...
    def count_prompt_tokens(self, request: Any) -> list[int]: ...


class LLMRuntime(Protocol):
    """One call at a time: the caller serialises."""

    def handle_request(self, request: Any) -> GenerationResponse: ...
    def count_prompt_tokens(self, request: Any) -> list[int]: ...
    def capture_decoding_cuda_graph(self) -> bool: ...
    def get_context_cache_metrics(self) -> Any | None: ...
    def load_omni(
        self,
        talker_engine_dir: str,
        code_predictor_engine_dir: str,
        code2wav_engine_dir: str,
        tokenizer_dir: str,
        checkpoint_dir: str = ...,
    ) -> None: ...
    def get_speaker_names(self) -> list[str]: ...
    def handle_request_streaming_audio(self, request: Any, audio_channel: Any, params: Any) -> GenerationResponse: ...
    def handle_request_tts(self, text: str, params: Any, audio_channel: Any) -> int: ...


class RuntimeModule(Protocol):
    """The module's own attributes are looked up by name: classes, enums, and extensions found by ``hasattr``."""

    def __getattr__(self, name: str) -> Any: ...


_MEDIA_FIELDS = ("total_images", "total_image_tokens")
SCHEDULING_FIELDS: Sequence[str] = (
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
    "queue_latency_max_us",
)

_POOLS = ("base_kv_pages", "draft_kv_pages", "recurrent_snapshots", "partial_kv_snapshots")
_CONTEXT_CACHE_FIELDS: Sequence[str] = (
    "admitted_sequences",
    "hit_sequences",
    "lookup_bypass_sequences",
    "forced_cold_sequences",
    "matched_tokens",
    "reused_tokens",
    "standard_plans",
    "full_input_rewind_plans",
    "no_reusable_prefix_plans",
    "publication_attempts",
    "published_endpoints",
    "committed_publications",
    "existing_publications",
    "spec_pair_publications",
    "spec_full_page_replays",
    "hybrid_capture_synchronizations",
    "hybrid_restores",
    "hybrid_snapshot_pressure_skips",
    "evicted_records",
    "reclaimed_base_kv_pages",
    "reclaimed_draft_kv_pages",
    "reclaimed_recurrent_snapshots",
    "reclaimed_partial_kv_snapshots",
    "current_records",
    "planning_nanoseconds",
)


def scheduling_counters(engine: RequestEngine) -> dict[str, int]:
    """Give the engine's counters as integers; the mean queue latency is 0 when nothing has queued."""
    metrics = engine.metrics()
    counters = {name: int(getattr(metrics, name)) for name in SCHEDULING_FIELDS}
    count = int(metrics.queue_latency_count)
    counters["queue_latency_avg_us"] = int(metrics.queue_latency_total_us) // count if count else 0
    counters["queued"] = int(engine.queued)
    counters["resident"] = int(engine.resident)
    return counters


def media_counters(native: Any) -> Mapping[str, int] | None:
    """What a runtime encoded beside text, by the names of the contract's MultimodalMetrics; None where it counts none.

    Nothing that was encoded is no counter: a model of text has none.
    """
    read = getattr(native, "get_multimodal_metrics", None)
    if read is None:
        return None
    metrics = read()
    counters = {name: int(getattr(metrics, name)) for name in _MEDIA_FIELDS}
    return counters if any(counters.values()) else None


def context_cache_counters(metrics: Any) -> Mapping[str, int]:
    """Flatten the contract's ContextCacheMetrics; pools become ``<pool>_free`` and ``<pool>_capacity``."""
    counters = {name: int(getattr(metrics, name)) for name in _CONTEXT_CACHE_FIELDS}
    for pool in _POOLS:
        pool_metrics = getattr(metrics, pool)
        counters[f"{pool}_free"] = int(pool_metrics.free)
        counters[f"{pool}_capacity"] = int(pool_metrics.capacity)
    return counters
