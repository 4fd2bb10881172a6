"""The speaking half of a runtime module that follows a script: a channel of sound, and a runtime that fills it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.runtime.scripted_runtime import ScriptedModule
from tests.unit.runtime.scripted_sound import AudioChunk as AudioChunk
from tests.unit.runtime.scripted_sound import AudioStreamChannel as AudioStreamChannel
from tests.unit.runtime.scripted_sound import Speech
from tests.unit.runtime.scripted_sound import chunks as chunks
from tests.unit.runtime.scripted_values import OmniAudioParams


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

    def __init__(self) -> None:
        super().__init__(extensions=False)
        self.speakers: list[TTSRuntime] = []

    def TTSRuntime(self, *arguments: Any) -> TTSRuntime:
        runtime = TTSRuntime(arguments, self.speech, self.names)
        self.speakers.append(runtime)
        return runtime
