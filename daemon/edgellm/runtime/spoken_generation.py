"""SpokenGeneration: a call of the runtime that speaks, beside its text or alone, as deltas of text and of sound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from edgellm.errors import RequestCancelledError
from edgellm.runtime.contract import GenerationResponse, RuntimeModule, StreamChannel
from edgellm.runtime.deltas import to_delta
from edgellm.runtime.native_errors import map_request_error
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.running import OnReleased

# While text flows it sets the pace, and sound is taken along.
TEXT_WAIT_MS: Final = 20
SOUND_WAIT_MS: Final = 100


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _SoundAlone:
    """A response without sequences."""

    output_ids: list[list[int]] = field(default_factory=list)
    output_texts: list[str] = field(default_factory=list)
    logprobs: list[list[list[Any]]] = field(default_factory=list)
    finish_reasons: list[Any] = field(default_factory=list)
    prompt_token_counts: list[int] = field(default_factory=list)


class SpokenGeneration:
    """Text and sound are separate deltas, each kind in its order; ``finished`` ends the text alone.

    ``channel`` is None where there is no text. ``on_released`` is called once, when the call has returned.
    """

    def __init__(
        self,
        module: RuntimeModule,
        call: Callable[[], GenerationResponse | int],
        channel: StreamChannel | None,
        audio_channel: Any,
        on_released: OnReleased,
    ) -> None:
        self._module = module
        self._call = call
        self._channel = channel
        self._audio_channel = audio_channel
        self._on_released = on_released
        self._cancelled = False
        self._response: GenerationResponse | int | None = None
        self._error: Exception | None = None
        self._given_up: Callable[[], bool] = _never
        self._deltas = self._read()
        self._worker = threading.Thread(target=self._run, name="edgellm-generation", daemon=True)
        self._worker.start()

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def next_delta(self, given_up: Callable[[], bool] = _never) -> StreamDelta | None:
        """Wait for text or sound. None when no other will come."""
        self._given_up = given_up
        return next(self._deltas, None)

    def cancel(self) -> None:
        self._cancelled = True
        self._cancel_channels()

    def result(self) -> GenerationResponse:
        """Wait until the runtime has let go; of no sequences for a call that makes no text. Raises what went wrong."""
        self._worker.join()
        if self._error is not None or self._response is None:
            error = self._error or RuntimeError("no response")
            raise map_request_error(self._module, error, cancelled=self._cancelled) from error
        if isinstance(self._response, int):
            if self._cancelled:
                raise RequestCancelledError("the request was cancelled")
            return _SoundAlone()
        if self._cancelled and "CANCELLED" in [reason.name for reason in self._response.finish_reasons]:
            raise RequestCancelledError("the request was cancelled")
        return self._response

    def end(self) -> None:
        """Cancel what still runs and return when the runtime has let go."""
        if self._worker.is_alive():
            self.cancel()
        self._worker.join()

    def _read(self) -> Iterator[StreamDelta]:
        channel, sound = self._channel, self._audio_channel
        is_text_over, is_sound_over = channel is None, False
        while not (is_text_over and is_sound_over):
            if self._given_up():
                self.cancel()
            # What came between the last look and the return is looked for once more.
            has_returned = not self._worker.is_alive()
            if channel is not None and not is_text_over:
                chunk = channel.wait_pop(TEXT_WAIT_MS)
                if chunk is None and (has_returned or channel.is_finished() or channel.is_cancelled()):
                    chunk = channel.try_pop()
                    is_text_over = chunk is None
                if chunk is not None:
                    is_text_over = chunk.finished
                    yield to_delta(chunk)
            if not is_sound_over:
                piece = sound.wait_pop(SOUND_WAIT_MS if is_text_over else 0)
                if piece is None and (has_returned or sound.is_finished() or sound.is_cancelled()):
                    piece = sound.try_pop()
                    is_sound_over = piece is None
                if piece is not None:
                    is_sound_over = piece.is_final
                    if piece.pcm16:
                        yield StreamDelta(audio_bytes=piece.pcm16, audio_frames=piece.num_frames)

    def _run(self) -> None:
        try:
            self._response = self._call()
        except Exception as error:  # kept for result(): this thread has nobody to raise to
            self._error = error
            self._cancel_channels()
        finally:
            self._on_released()

    def _cancel_channels(self) -> None:
        if self._channel is not None:
            self._channel.cancel()
        self._audio_channel.cancel()
