"""The channel of sound of a runtime module that follows a script, and what is said over it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

DEADLINE_SECONDS = 20.0


@dataclass(frozen=True)
class AudioChunk:
    pcm16: bytes
    num_frames: int = 1
    is_final: bool = False


class AudioStreamChannel:
    """As NVIDIA's: waits on a cancelled channel return at once."""

    def __init__(self) -> None:
        self._chunks: deque[AudioChunk] = deque()
        self._changed = threading.Condition()
        self._is_cancelled = self._is_finished = False

    def push(self, chunk: AudioChunk) -> None:
        with self._changed:
            self._chunks.append(chunk)
            self._is_finished = self._is_finished or chunk.is_final
            self._changed.notify_all()

    def try_pop(self) -> AudioChunk | None:
        with self._changed:
            return self._chunks.popleft() if self._chunks else None

    def wait_pop(self, timeout_ms: int) -> AudioChunk | None:
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._is_cancelled, timeout_ms / 1000)
            return self._chunks.popleft() if self._chunks else None

    def cancel(self) -> None:
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def is_cancelled(self) -> bool:
        return self._is_cancelled

    def is_finished(self) -> bool:
        return self._is_finished

    def wait_until_cancelled(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_cancelled, DEADLINE_SECONDS)


Speech = Callable[[AudioStreamChannel], int]


def chunks(*sounds: bytes) -> Speech:
    """Sound a piece at a time, the last of which says that it is the last."""

    def say(channel: AudioStreamChannel) -> int:
        for number, sound in enumerate(sounds, 1):
            channel.push(AudioChunk(sound, is_final=number == len(sounds)))
        return len(sounds)

    return say
