"""Drives edgellm._native directly with token ids: the shortest way from a test to the runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgellm.runtime.native_module import load_native_module

# Makes an engine directory of a tiny model: (variant, matrix type or quantisation) to its path.
BundleMaker = Callable[..., Path]

WAIT_MILLISECONDS = 120_000


@cache
def native_module() -> Any:
    return load_native_module(os.environ)


def runtime_options(**values: Any) -> Any:
    options = native_module().RuntimeOptions()
    for name, value in values.items():
        if not hasattr(options, name):
            raise AttributeError(name)
        setattr(options, name, value)
    return options


def cache_config(*, enabled: bool, max_records: int = 1024) -> Any:
    config = native_module().ContextCacheConfig()
    config.enabled = enabled
    config.max_records = max_records
    return config


@dataclass(frozen=True, slots=True)
class Ask:
    """One sequence to generate. ``extensions`` are set on Request.extensions by name."""

    prompt: Sequence[int]
    max_tokens: int = 16
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    logprobs: int = 0
    stop: Sequence[str] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    reuse: bool = True
    commit_generated: bool = True
    extensions: Mapping[str, Any] = field(default_factory=dict)

    def native(self) -> Any:
        module = native_module()
        request = module.LLMGenerationRequest()
        request.temperature = self.temperature
        request.top_p = self.top_p
        request.top_k = self.top_k
        request.max_generate_length = self.max_tokens
        request.num_logprobs = self.logprobs
        lookup, commit = module.ContextCacheLookupPolicy, module.ContextCacheCommitPolicy
        request.context_cache_lookup_policy = lookup.USE_CACHE if self.reuse else lookup.BYPASS
        request.context_cache_commit_policy = (
            commit.INCLUDING_GENERATED_TOKENS if self.commit_generated else commit.PREFILL_STATE_ONLY
        )
        item = module.Request()
        item.stop_strings = list(self.stop)
        item.logit_bias = dict(self.logit_bias)
        if self.seed is not None:
            item.sampling_seed = self.seed
        item.extensions.token_ids = list(self.prompt)
        for name, value in self.extensions.items():
            setattr(item.extensions, name, value)
        request.requests = [item]
        request.stream_channels = [module.StreamChannel.create()]
        return request


@dataclass(frozen=True, slots=True)
class Answer:
    token_ids: list[int]
    text: str
    finish: str
    prompt_tokens: int
    reused_tokens: int
    matched_stop: int
    logprobs: list[list[tuple[int, float, bytes]]]

    @classmethod
    def of(cls, response: Any) -> Answer:
        return cls(
            token_ids=list(response.output_ids[0]),
            text=response.output_texts[0],
            finish=response.finish_reasons[0].name,
            prompt_tokens=response.prompt_token_counts[0],
            reused_tokens=response.reused_token_counts[0],
            matched_stop=response.matched_stops[0],
            logprobs=[
                [(entry.token_id, entry.logprob, entry.piece) for entry in entries] for entries in response.logprobs[0]
            ]
            if response.logprobs
            else [],
        )


class NativeRuntime:
    """LLMRuntime over a directory that holds llm.gguf."""

    def __init__(self, directory: Path, *, caches_context: bool = False, **options: Any) -> None:
        self.native = native_module().LLMRuntime(
            str(directory),
            context_cache_config=cache_config(enabled=caches_context),
            options=runtime_options(**options),
        )

    def score(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Logits of every position, [positions, vocabulary]."""
        logits: NDArray[np.float32] = self.native.score(list(token_ids))
        return logits

    def answer(self, ask: Ask) -> Answer:
        return Answer.of(self.native.handle_request(ask.native()))


class Submitted:
    """A request in flight: its chunks, and its answer."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.channel = handle.stream()

    def next_chunk(self) -> Any:
        """The next chunk, or None when the channel has ended. Fails when nothing comes in time."""
        if self.channel.is_finished() or self.channel.is_cancelled():
            return self.channel.try_pop()
        chunk = self.channel.wait_pop(WAIT_MILLISECONDS)
        if chunk is None and not (self.channel.is_finished() or self.channel.is_cancelled()):
            raise TimeoutError("no chunk came")
        return chunk

    def chunks(self) -> list[Any]:
        """Every chunk up to the last one."""
        collected = []
        while (chunk := self.next_chunk()) is not None:
            collected.append(chunk)
            if chunk.finished:
                break
        return collected

    def answer(self) -> Answer:
        return Answer.of(self.handle.get())


class NativeEngine:
    """RequestEngine over a directory that holds llm.gguf."""

    def __init__(
        self,
        directory: Path,
        *,
        sequences: int = 4,
        caches_context: bool = False,
        max_records: int = 1024,
        **options: Any,
    ) -> None:
        self.native = native_module().RequestEngine(
            str(directory),
            context_cache_config=cache_config(enabled=caches_context, max_records=max_records),
            max_batch_size=sequences,
            options=runtime_options(**options),
        )

    def submit(self, ask: Ask) -> Submitted:
        return Submitted(self.native.submit(ask.native()))

    def answer(self, ask: Ask) -> Answer:
        return self.submit(ask).answer()

    def answers(self, asks: Sequence[Ask]) -> list[Answer]:
        """All at once."""
        return [submitted.answer() for submitted in [self.submit(ask) for ask in asks]]

    def close(self) -> None:
        self.native.shutdown(native_module().ShutdownMode.CANCEL)
