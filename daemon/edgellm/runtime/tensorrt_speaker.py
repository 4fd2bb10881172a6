"""TensorRTSpeaker: a speech model of its own (talker, code predictor, code2wav) in NVIDIA's runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edgellm.engines.lease import Lease
from edgellm.engines.progress import Progress, ProgressCallback
from edgellm.engines.resources.estimate import require_memory
from edgellm.engines.source import ModelSource
from edgellm.engines.tensorrt.components import SPEECH_COMPONENTS
from edgellm.engines.tensorrt.layout import EngineLayout
from edgellm.errors import BundleDamagedError, UnsupportedModelError
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.capabilities import Speech, Voice, capabilities_of_sound
from edgellm.runtime.contract import RuntimeModule
from edgellm.runtime.generation import SpeechPrompt
from edgellm.runtime.llm_options import LLMOptions
from edgellm.runtime.loader import prepare_bundle
from edgellm.runtime.native_audio_params import DEFAULT_VOICE, native_audio_params
from edgellm.runtime.native_errors import map_load_error
from edgellm.runtime.speech_front_end import SPEECH_INPUT_CHARACTERS_MAX, check_speech_prompt, check_talker_speed
from edgellm.runtime.spoken_generation import SpokenGeneration
from edgellm.runtime.tensorrt_load import speech_load_estimate


def load_tensorrt_speaker(options: LLMOptions, on_progress: ProgressCallback) -> TensorRTSpeaker:
    """Built first if it has to be. Raises UnsupportedModelError where models do not run on TensorRT."""

    def check(source: ModelSource, runtime: str) -> None:
        if runtime != "tensorrt":
            raise UnsupportedModelError(
                f"{source.model_id}: a speech model for TensorRT, and models run on the CPU here — take a Piper voice"
            )

    prepared = prepare_bundle(options, on_progress, check=check)
    try:
        on_progress(Progress("load", f"loading {prepared.source.model_id}"))
        return TensorRTSpeaker(prepared.selected.module, prepared.source, prepared.lease)
    except BaseException:
        prepared.lease.close()
        raise


class TensorRTSpeaker:
    """Speaks one text at a time; TTS sees to that. Owns the lease of its bundle."""

    def __init__(self, module: RuntimeModule, source: ModelSource, lease: Lease) -> None:
        found = EngineLayout.inspect(lease.directory)
        if lacking := sorted(SPEECH_COMPONENTS - set(found.components)):
            raise BundleDamagedError(f"{source.model_id}: its engine has no {', '.join(lacking)} — build it anew")
        require_memory(
            speech_load_estimate(found, source), source.model_id, "choose a smaller model, or end other programs"
        )
        talker, predictor, code2wav = (str(found.folder(name)) for name in ("talker", "code_predictor", "code2wav"))
        try:
            self._runtime: Any = module.TTSRuntime(talker, predictor, code2wav, talker, str(source.path))
            names = sorted(self._runtime.get_speaker_names())
        except Exception as error:
            raise map_load_error(module, error, in_flight_batching=False) from error
        self._module: Any = module
        self._lease = lease
        self._names = frozenset(names)
        self.model_id = source.model_id
        self.bundle_dir = str(lease.directory)
        self.capabilities = capabilities_of_sound(
            "tensorrt",
            max_length=SPEECH_INPUT_CHARACTERS_MAX,
            output_modalities=("audio",),
            speech=Speech(tuple(Voice(name) for name in names or [DEFAULT_VOICE])),
        )

    def prepare(self, prompt: SpeechPrompt, params: AudioParams) -> TensorRTUtterance:
        check_speech_prompt(prompt, self.capabilities.speech)
        params.check()
        check_talker_speed(prompt.speed)
        return TensorRTUtterance(
            self, prompt.text, native_audio_params(self._module, params, prompt.voice, self._names)
        )

    def pcm(self, text: str, native: Any, is_cancelled: Cancellation) -> Iterator[tuple[bytes, int]]:
        """Sound as the runtime makes it. However it ends, the runtime's call has returned then."""
        channel = self._module.AudioStreamChannel()
        spoken = SpokenGeneration(
            self._module, lambda: self._runtime.handle_request_tts(text, native, channel), None, channel, _nothing
        )
        try:
            while (delta := spoken.next_delta(is_cancelled.is_set)) is not None and not is_cancelled():
                yield delta.audio_bytes or b"", delta.audio_frames
            if not is_cancelled.is_set():
                spoken.result()
        finally:
            spoken.end()

    def close(self) -> None:
        try:
            self._runtime = None
        finally:
            self._lease.close()


@dataclass(frozen=True, slots=True)
class TensorRTUtterance:
    speaker: TensorRTSpeaker
    text: str
    native: Any

    @property
    def units(self) -> int:
        """The runtime does not say how many tokens it has."""
        return 0

    def pcm(self, is_cancelled: Cancellation) -> Iterator[tuple[bytes, int]]:
        return self.speaker.pcm(self.text, self.native, is_cancelled)


def _nothing() -> None:
    """Whoever speaks holds the place."""
