"""OmniSpeech: the half of an Omni model that speaks (talker, code predictor, code2wav), beside its text."""

from __future__ import annotations

from typing import Any

from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.capabilities import Speech, Voice
from edgellm.runtime.contract import RuntimeModule, StreamChannel
from edgellm.runtime.drivers import BlockingDriver
from edgellm.runtime.generation import SpeechPrompt, SpokenOutput
from edgellm.runtime.native_audio_params import DEFAULT_VOICE, native_audio_params
from edgellm.runtime.native_errors import map_load_error
from edgellm.runtime.running import OnReleased
from edgellm.runtime.spoken_generation import SpokenGeneration


class OmniSpeech:
    """Loaded into the runtime of a driver, whose calls take turns with those of text."""

    def __init__(self, module: RuntimeModule, driver: BlockingDriver, folders: tuple[str, str, str, str, str]) -> None:
        """``folders``: talker, code predictor, code2wav, tokenizer, checkpoint."""
        self._module: Any = module
        self._driver = driver
        try:
            driver.call(lambda runtime: runtime.load_omni(*folders))
            self._names = tuple(sorted(driver.call(lambda runtime: runtime.get_speaker_names())))
        except Exception as error:  # pybind raises whatever type the module registered
            raise map_load_error(module, error, in_flight_batching=False) from error
        self.speech = Speech(tuple(Voice(name) for name in self._names or (DEFAULT_VOICE,)))

    def start_answer(
        self, native_request: Any, channel: StreamChannel, spoken: SpokenOutput, on_released: OnReleased
    ) -> SpokenGeneration:
        """Answer a request in text and sound."""
        params, sound = self._params(spoken.params, spoken.voice), self._module.AudioStreamChannel()
        return SpokenGeneration(
            self._module,
            lambda: self._driver.speak(
                lambda runtime: runtime.handle_request_streaming_audio(native_request, sound, params),
                sound.is_cancelled,
            ),
            channel,
            sound,
            on_released,
        )

    def start_speech(self, prompt: SpeechPrompt, params: AudioParams, on_released: OnReleased) -> SpokenGeneration:
        """Say a text, of which no answer is made."""
        native, sound = self._params(params, prompt.voice), self._module.AudioStreamChannel()
        return SpokenGeneration(
            self._module,
            lambda: self._driver.speak(
                lambda runtime: runtime.handle_request_tts(prompt.text, native, sound), sound.is_cancelled
            ),
            None,
            sound,
            on_released,
        )

    def _params(self, params: AudioParams, voice: str) -> Any:
        return native_audio_params(self._module, params, voice, self._names)
