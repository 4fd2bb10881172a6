"""TensorRTTranscriber: a Qwen3-ASR model (audio encoder and text decoder) in NVIDIA's runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from edgellm.engines.progress import Progress, ProgressCallback
from edgellm.engines.source import ModelSource
from edgellm.engines.tensorrt.engine_metadata import EngineMetadata
from edgellm.errors import (
    BundleDamagedError,
    ContextLengthError,
    EdgeLLMError,
    GenerationError,
    RequestError,
    UnsupportedModelError,
)
from edgellm.media.audio import SAMPLE_RATE_HZ, Samples, audio_samples
from edgellm.media.audio_stretches import stretches
from edgellm.media.media_input import DecodedMedia, MediaInput
from edgellm.parsing.transcript_head import LANGUAGE_NAMES, TranscriptHead
from edgellm.runtime.audio_front_end import check_audio_prompt, no_audio_extra
from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.capabilities import Transcription
from edgellm.runtime.generation import AudioPrompt, ChatPrompt, GenerationRequest
from edgellm.runtime.llm_options import LLMOptions
from edgellm.runtime.loaded_model import LoadedModel
from edgellm.runtime.loader import prepare_bundle
from edgellm.runtime.outputs import StreamDelta, TranscriptFacts, TranscriptPiece
from edgellm.runtime.running import RunningGeneration
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.tensorrt_load import load_tensorrt_bundle

_PLACE: Final = "file"  # the field of the form that a sound comes in
_TIME_STEPS_PER_SECOND: Final = 100  # of the encoder's input
_TRANSCRIPT_TOKENS_MAX: Final = 4096  # of a stretch
# Their sentences follow each other without a space.
_LANGUAGES_WITHOUT_SPACES: Final = ("ja", "th", "yue", "zh")


def load_tensorrt_transcriber(options: LLMOptions, on_progress: ProgressCallback) -> TensorRTTranscriber:
    """Built first if it has to be. Raises UnsupportedModelError where models do not run on TensorRT."""
    try:
        import av  # noqa: F401
    except ImportError as error:
        raise no_audio_extra(error) from None

    def check(source: ModelSource, runtime: str) -> None:
        if runtime != "tensorrt":
            raise UnsupportedModelError(
                f"{source.model_id}: a speech recognition model for TensorRT, and models run on the CPU here: take a "
                "Whisper model"
            )

    prepared = prepare_bundle(options, on_progress, check=check)
    try:
        on_progress(Progress("load", f"loading {prepared.source.model_id}"))
        directory = prepared.lease.directory
        loaded = load_tensorrt_bundle(prepared.selected.module, directory, prepared.source, None, options)
        return TensorRTTranscriber(replace(loaded, lease=prepared.lease), directory)
    except BaseException:
        prepared.lease.close()
        raise


class TensorRTTranscriber:
    """Owns the loaded model."""

    def __init__(self, loaded: LoadedModel, bundle_dir: Path) -> None:
        metadata = EngineMetadata.load(bundle_dir)
        if loaded.layout.audio_dir is None or "asr" not in metadata.audio_model_type.lower():
            loaded.close()
            raise BundleDamagedError(
                f"{loaded.model_id}: its engine has no encoder for speech recognition: build it anew"
            )
        self._loaded = loaded
        self._samples_min, self._samples_max = (
            steps * SAMPLE_RATE_HZ // _TIME_STEPS_PER_SECOND
            for steps in (metadata.audio_min_time_steps, metadata.audio_max_time_steps)
        )
        self.model_id = loaded.model_id
        self.bundle_dir = loaded.layout.root
        self.capabilities = replace(
            loaded.capabilities,
            input_modalities=("audio",),
            guided_decoding=(),
            transcription=Transcription(languages=tuple(LANGUAGE_NAMES), has_times=False),
        )
        room = self.capabilities.max_kv_cache_capacity - self.capabilities.max_input_len
        self._tokens_max = min(_TRANSCRIPT_TOKENS_MAX, max(room, self.capabilities.max_kv_cache_capacity // 2))

    def transcribe(
        self, prompt: AudioPrompt, temperature: float, is_cancelled: Cancellation
    ) -> Iterator[TranscriptPiece | TranscriptFacts]:
        check_audio_prompt(prompt, self.capabilities.transcription)
        params = SamplingParams(temperature=temperature, top_p=1.0, max_tokens=self._tokens_max)
        language, heard_samples = prompt.language, 0
        for stretch in stretches(audio_samples(prompt.audio, is_cancelled), self._samples_max):
            head = TranscriptHead()
            is_first_of_stretch = True
            for piece in self._heard(_chat(prompt, language), params, stretch, head, is_cancelled):
                text = piece.text.lstrip() if is_first_of_stretch else piece.text
                if is_first_of_stretch and text:
                    is_first_of_stretch = False
                    if heard_samples and language not in _LANGUAGES_WITHOUT_SPACES:
                        text = f" {text}"
                yield replace(piece, text=text)
            if is_cancelled():
                return
            language = language or head.language
            heard_samples += len(stretch)
        yield TranscriptFacts(language or "", round(heard_samples / SAMPLE_RATE_HZ, 3))

    def close(self) -> None:
        self._loaded.close()

    def _heard(
        self, chat: ChatPrompt, params: SamplingParams, sound: Samples, head: TranscriptHead, is_cancelled: Cancellation
    ) -> Iterator[TranscriptPiece]:
        """The transcript of one stretch as it is written. However it ends, the runtime's call has returned then."""
        padded = np.pad(sound, (0, max(0, self._samples_min - len(sound))))
        request = GenerationRequest(chat, params, media=(MediaInput("audio", _PLACE, ()),))
        native, channel = self._loaded.builder.build(request, [DecodedMedia("audio", _PLACE, padded)])
        generation = self._loaded.driver.start(native, channel, _nothing)
        last: StreamDelta | None = None
        try:
            while (delta := generation.next_delta(is_cancelled.is_set)) is not None and not is_cancelled():
                last = delta
                text = head.take(last.text) + (head.finish() if last.finished else "")
                yield TranscriptPiece(text, last.token_ids, last.prompt_tokens)
                if last.finished:
                    break
        finally:
            if last is None or not last.finished:
                generation.cancel()
            error = _error_of(generation)
        if is_cancelled.is_set():
            return
        if isinstance(error, ContextLengthError):
            raise RequestError("prompt leaves no room for the sound: make it shorter.", param="prompt") from None
        if error is not None:
            raise error
        if last is None or last.finish_reason not in ("stop", "length"):
            raise GenerationError("the runtime could not finish this request")


def _error_of(generation: RunningGeneration) -> EdgeLLMError | None:
    """Once the runtime has let go."""
    try:
        generation.result()
    except EdgeLLMError as error:
        return error
    return None


def _chat(prompt: AudioPrompt, language: str | None) -> ChatPrompt:
    """As NVIDIA's server asks: the language's name first, and behind the sound what came before it."""
    content: list[dict[str, Any]] = [{"type": "audio"}]
    if prompt.context:
        content.append({"type": "text", "text": prompt.context})
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if language is not None:
        messages.insert(0, {"role": "system", "content": LANGUAGE_NAMES[language]})
    return ChatPrompt(messages)


def _nothing() -> None:
    """Serving counts places by what receivers are told."""
