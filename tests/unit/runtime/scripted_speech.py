"""The speaking half of a runtime module that follows a script: a channel of sound, and a runtime that fills it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.runtime.scripted_runtime import DEADLINE_SECONDS, ScriptedModule
from tests.unit.runtime.scripted_values import OmniAudioParams


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


@dataclass
class TTSRuntime:
    arguments: Sequence[Any]
    speech: Speech
    names: Sequence[str]
    spoken: list[tuple[str, OmniAudioParams]] = field(default_factory=list)
    calls_running: int = 0

    def get_speaker_names(self) -> list[str]:
        return list(self.names)

    def handle_request_tts(self, text: str, params: OmniAudioParams, audio_channel: AudioStreamChannel) -> int:
        self.spoken.append((text, params))
        self.calls_running += 1
        try:
            return self.speech(audio_channel)
        finally:
            self.calls_running -= 1


class SpeakingModule(ScriptedModule):
    """``speech`` is what every runtime says, ``names`` who its speakers are."""

    AudioStreamChannel = AudioStreamChannel

    def __init__(self) -> None:
        super().__init__(extensions=False)
        self.speech: Speech = chunks(b"ab", b"cd")
        self.names: Sequence[str] = ("vivian", "eric")
        self.speakers: list[TTSRuntime] = []

    def TTSRuntime(self, *arguments: Any) -> TTSRuntime:
        runtime = TTSRuntime(arguments, self.speech, self.names)
        self.speakers.append(runtime)
        return runtime
