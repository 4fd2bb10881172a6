"""RunningChoice: the receiver of one choice on its lane, which counts what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from edgellm.errors import EdgeLLMError, WorkerFailedError
from edgellm.runtime.generation import AudioPrompt, GenerationRequest, SpeechPrompt
from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.delta_buffer import DeltaBuffer
from edgellm.serving.report import RequestReport
from edgellm.serving.run_lengths import RunProgress

_GAPS_COUNTED_AT_A_TIME = 64
_GOOD_ENDS = frozenset({"stop", "length", "tool_calls"})


def tokens_max(request: GenerationRequest) -> int:
    """What it may say; 0 for what says no text."""
    says_text = not request.embedding and not isinstance(request.prompt, (AudioPrompt, SpeechPrompt))
    return request.params.max_tokens if says_text else 0


class RunningChoice:
    """The receiver of one choice on its lane.

    A token finds the processor's caches full of weights: what costs is how much code and data it touches, not how
    often. So it passes few calls here, and tokens and the gaps between them are counted many at a time.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_finish_reason",
        "_first_token_seconds",
        "_gaps_seconds",
        "_index",
        "_last_token_seconds",
        "_pieces",
        "_prompt_tokens",
        "_report",
        "_reported_tokens",
        "_token_gap",
        "_tokens",
        "_tokens_max",
        "_tokens_max_to_come",
        "has_begun",
    )

    def __init__(
        self,
        index: int,
        request: GenerationRequest,
        report: RequestReport,
        buffer: DeltaBuffer,
        token_gap: Callable[[float], None],
        tokens_max_to_come: Callable[[], int],
    ) -> None:
        self._report = report
        self._token_gap = token_gap
        self._tokens_max = tokens_max(request)
        self._tokens_max_to_come = tokens_max_to_come
        self._prompt_tokens = len(request.prompt_token_ids or ())  # known before; not in the report yet
        self._buffer = buffer
        self._index = index
        self._tokens = 0  # not in the report yet
        self._reported_tokens = 0
        self._first_token_seconds = 0.0
        self.has_begun = False  # its lane took it, while it was still wanted: a step computes of its prompt
        self._finish_reason: str | None = None
        self._last_token_seconds = 0.0  # no token yet
        self._gaps_seconds: list[float] = []
        texts = report.texts
        self._pieces = None if texts is None else texts.answers.setdefault(index, [])
        self._end: asyncio.Future[EdgeLLMError | None] = asyncio.get_running_loop().create_future()

    @property
    def has_spoken(self) -> bool:
        return self._last_token_seconds > 0 or self._finish_reason is not None

    def progress(self) -> RunProgress | None:
        if not self._tokens_max:
            return None
        return RunProgress(
            generated_tokens=self._reported_tokens + self._tokens,
            tokens_max=self._tokens_max,
            decoding_seconds=self._last_token_seconds - self._first_token_seconds,
            following_tokens_max=self._tokens_max_to_come(),
        )

    def take_text(self, text: str, token_ids: list[int]) -> None:
        if token_ids:
            self._count(len(token_ids))
        if self._pieces is not None:
            self._pieces.append(text)
        self._buffer.put_text(self._index, text, token_ids)

    def take(self, delta: StreamDelta) -> None:
        if delta.token_ids or delta.audio_frames:
            self._count(len(delta.token_ids) + delta.audio_frames)
        if self._pieces is not None:
            self._pieces.append(delta.text)
        if delta.finished:
            report = self._report
            self._finish_reason = delta.finish_reason
            report.prompt_tokens += delta.prompt_tokens or 0
            report.cached_tokens += delta.cached_tokens or 0
            self._prompt_tokens = 0
            if delta.finish_reason not in _GOOD_ENDS:
                return
        self._buffer.put(self._index, delta)

    def ended(self, error: EdgeLLMError | None) -> None:
        self._pass_on_counts()
        report = self._report
        if self._last_token_seconds:
            report.last_token_seconds = max(report.last_token_seconds or 0.0, self._last_token_seconds)
        if error is None and self._finish_reason in _GOOD_ENDS:
            report.finish_reasons[self._finish_reason] += 1
        if error is None and self._finish_reason not in _GOOD_ENDS:
            error = WorkerFailedError("The model's worker ended the request without a result.")
        if not self._end.done():
            self._end.set_result(error)

    def count_prompt_if_begun(self) -> None:
        """For a choice that ended without a last delta, which would have said so."""
        if self.has_begun or self.has_spoken:
            self._report.prompt_tokens += self._prompt_tokens
            self._prompt_tokens = 0

    async def released(self) -> None:
        """Return once the lane has let go. Raises what went wrong."""
        error = await self._end
        if error is not None:
            raise error

    def _count(self, tokens: int) -> None:
        now = time.monotonic()
        self._tokens += tokens
        if self._last_token_seconds:
            self._gaps_seconds.append((now - self._last_token_seconds) / tokens)
            if len(self._gaps_seconds) == _GAPS_COUNTED_AT_A_TIME:
                self._pass_on_counts()
        else:
            self._first_token_seconds = now
            if self._report.first_token_seconds is None:
                self._report.first_token_seconds = now
        self._last_token_seconds = now

    def _pass_on_counts(self) -> None:
        self._report.generated_tokens += self._tokens
        self._reported_tokens += self._tokens
        self._tokens = 0
        for gap_seconds in self._gaps_seconds:
            self._token_gap(gap_seconds)
        self._gaps_seconds.clear()
