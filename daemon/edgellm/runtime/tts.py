"""TTS: text becomes speech, by a Piper voice on the CPU or by a speech model in NVIDIA's runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.piper_voice import is_piper_voice, resolve_piper_voice
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.engines.tensorrt.speech_checkpoint import is_speech_checkpoint
from edgellm.errors import ClosedError, ConfigError
from edgellm.media.speech_encoder import speech_encoder
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import SpeechPrompt
from edgellm.runtime.http_serving import OpenModel
from edgellm.runtime.llm_options import (
    DEFAULT_PORT,
    DEFAULT_QUEUE_TIMEOUT_SECONDS,
    DEFAULT_QUEUED_REQUESTS,
    DEFAULT_READ_ONLY_ENGINE_DIRS,
    LLMOptions,
)
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.piper_speaker import PiperSpeaker
from edgellm.runtime.speaker import Speaker, Utterance
from edgellm.runtime.tensorrt_speaker import load_tensorrt_speaker

_NOT_FOR_SPEECH: Final = {
    "draft_top_k": "speculative decoding",
    "draft_step": "speculative decoding",
    "verify_tree_size": "speculative decoding",
    "max_verify_tree_size": "speculative decoding",
    "max_draft_tree_size": "speculative decoding",
    "speculative_config": "speculative decoding",
    "enable_in_flight_batching": "in-flight batching",
    "enable_context_reuse": "context cache",
    "context_cache_config": "context cache",
    "max_image_tokens": "image input",
    "max_image_tokens_per_image": "image input",
}


class TTS(OpenModel):
    """Standalone text to speech: one voice, or several speakers of one model. One speech at a time; thread-safe.

    ``TTS("voice")`` takes the catalogue's voice, a Piper ``.onnx`` file, a folder with one, or a checkpoint folder of
    a speech model (``qwen3_tts``), which needs TensorRT.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        build_on_start: bool = True,
        read_only_engine_dirs: Sequence[str] = DEFAULT_READ_ONLY_ENGINE_DIRS,
        on_progress: ProgressCallback = ignore_progress,
        **options: Any,
    ) -> None:
        """Raises ConfigError, ModelSourceError, CheckpointError, UnsupportedModelError for a model that does not speak
        here, or RuntimeUnavailableError without the ``speech`` extra.
        """
        for name, feature in _NOT_FOR_SPEECH.items():
            if options.get(name):
                raise ConfigError(f"{name}: standalone speech models have no {feature}")
        if unknown := [name for name in options if name not in _NOT_FOR_SPEECH]:
            raise ConfigError(f"{unknown[0]}: speech models have no such option")
        model = os.fspath(model)
        folder = Path(cache_dir).expanduser() if cache_dir else default_cache_dir(os.environ)
        if not is_piper_voice(model) and is_speech_checkpoint(model, models_dir(folder)):
            launch = LLMOptions(
                model=model,
                cache_dir=str(folder),
                build_on_start=build_on_start,
                read_only_engine_dirs=tuple(read_only_engine_dirs),
            )
            self._speaker: Speaker = load_tensorrt_speaker(launch, on_progress)
        else:
            source = resolve_piper_voice(model, models_dir(folder), download=build_on_start, on_progress=on_progress)
            on_progress(Progress("load", "reading weights"))
            self._speaker = PiperSpeaker(source, threads)
        self._lock = Lock()
        self._is_closed = False

    @property
    def runtime_kind(self) -> str:
        return "tts"

    @property
    def model_id(self) -> str:
        """The name of the voice, or of the checkpoint."""
        return self._speaker.model_id

    @property
    def bundle_dir(self) -> str:
        return self._speaker.bundle_dir

    @property
    def capabilities(self) -> Capabilities:
        return self._speaker.capabilities

    @property
    def speech_available(self) -> bool:
        return True

    def list_voices(self) -> list[str]:
        """Names that ``AudioParams.voice`` takes, sorted. Raises RuntimeError once it is closed."""
        self._ensure_open()
        return sorted(voice.name for voice in self.capabilities.speech.voices)

    def generate_speech_stream(self, text: str, audio_params: AudioParams | None = None) -> Iterator[StreamDelta]:
        """Speak ``text``: each delta has ``audio_bytes``, samples of 16 bits, mono, at 24 kHz, as they are made. The
        last one is ``finished``.

        What is wrong with the request is raised here, at the call; a stream that is closed early stops with the
        part it is in. Raises RequestError, and RuntimeError once it is closed.
        """
        params = audio_params or AudioParams()
        self._ensure_open()
        voice = self.capabilities.speech.default_voice if params.voice is None else params.voice
        return self._locked(self.prepare(SpeechPrompt(text, voice, params.speed), params))

    def prepare(self, prompt: SpeechPrompt, params: AudioParams | None = None) -> Utterance:
        """What is to be said, found out before any of it is. Raises RequestError for what cannot be."""
        return self._speaker.prepare(prompt, params or AudioParams())

    def speak(self, spoken: Utterance, prompt: SpeechPrompt, is_cancelled: Cancellation) -> Iterator[StreamDelta]:
        """Sound in the prompt's format as it is made. Cancelled, it ends with the part it is in."""
        encoder = speech_encoder(prompt.format_name)
        for pcm, frames in spoken.pcm(is_cancelled):
            yield StreamDelta(audio_bytes=encoder.encode(pcm), audio_frames=frames)
        if not is_cancelled.is_set():
            yield StreamDelta(
                audio_bytes=encoder.finish(),
                finished=True,
                finish_reason="stop",
                prompt_tokens=spoken.units,
            )

    def serve(
        self,
        host: str | None = None,
        port: int = DEFAULT_PORT,
        *,
        served_model_name: str = "",
        api_key: str = "",
        max_queued_requests: int = DEFAULT_QUEUED_REQUESTS,
        queue_timeout: float = DEFAULT_QUEUE_TIMEOUT_SECONDS,
    ) -> None:
        """Serve speech over HTTP until interrupted, then close; routes for text refuse it. Binds 127.0.0.1 unless there
        is a key.
        """
        self._ensure_open()
        self._serve(
            served_model_name=served_model_name,
            host=host,
            port=port,
            api_key=api_key,
            max_queued_requests=max_queued_requests,
            queue_timeout_seconds=queue_timeout,
        )

    def close(self) -> None:
        """Let the speech that runs end, then release the voice. Idempotent."""
        self._is_closed = True
        with self._lock:
            self._speaker.close()

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this voice was closed")

    def _locked(self, spoken: Utterance) -> Iterator[StreamDelta]:
        with self._lock:
            self._ensure_open()
            for pcm, frames in spoken.pcm(Cancellation()):
                if pcm:
                    yield StreamDelta(audio_bytes=pcm, audio_frames=frames)
            yield StreamDelta(finished=True, finish_reason="stop", prompt_tokens=spoken.units)
