"""LoadedModel: a model in a runtime, ready to run requests; what LLM and the in-process lane share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgellm.engines.lease import Lease
from edgellm.engines.resources.available_memory import available_memory_bytes
from edgellm.errors import UnsupportedModalityError
from edgellm.media.media_decoder import MediaDecoder
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.contract import StreamChannel
from edgellm.runtime.drivers import Driver
from edgellm.runtime.generation import GenerationRequest, SpeechPrompt
from edgellm.runtime.media_start import MediaStart
from edgellm.runtime.native_request import NativeRequestBuilder
from edgellm.runtime.omni_speech import OmniSpeech
from edgellm.runtime.prompt_front_end import PromptFrontEnd
from edgellm.runtime.request_encoder import RequestEncoder
from edgellm.runtime.running import OnReleased, RunningGeneration


@dataclass(frozen=True, slots=True)
class BundleLayout:
    """What a bundle holds. ``engine_type`` is ``llm`` or ``spec_decode``; a folder is None where there is none."""

    root: str
    engine_type: str = "llm"
    visual_dir: str | None = None
    audio_dir: str | None = None
    talker_dir: str | None = None
    code_predictor_dir: str | None = None
    code2wav_dir: str | None = None

    @property
    def has_speech(self) -> bool:
        return None not in (self.talker_dir, self.code_predictor_dir, self.code2wav_dir)

    @property
    def media_dir(self) -> str:
        """What the runtime takes for the encoders: the bundle itself, "" where there are none."""
        return self.root if self.visual_dir or self.audio_dir else ""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Everything about one loaded model. Thread-safe; the driver owns the native runtime.

    ``lease`` keeps the bundle from eviction until ``close``.
    """

    model_id: str
    model_path: Path
    layout: BundleLayout
    capabilities: Capabilities
    driver: Driver
    builder: NativeRequestBuilder
    front_end: PromptFrontEnd
    has_draft_model: bool = False
    lease: Lease | None = None
    speech: OmniSpeech | None = None
    decoder: MediaDecoder = field(default_factory=lambda: MediaDecoder(available_bytes=available_memory_bytes))

    def close(self) -> None:
        """Drop the runtime, then let its bundle go."""
        try:
            self.decoder.close()
            self.driver.close()
        finally:
            if self.lease is not None:
                self.lease.close()

    def encode(self, request: GenerationRequest) -> GenerationRequest:
        """Give the request as it will run: tokenised where the runtime takes ids, its answer fitted to the room."""
        return RequestEncoder(self.capabilities, self.front_end).encode(request)

    def count(self, request: GenerationRequest) -> int:
        """Give how many tokens the prompt has; takes no place in the runtime."""
        return self.front_end.count(request)

    def start(self, request: GenerationRequest, on_released: OnReleased) -> RunningGeneration:
        """Hand an encoded request to the runtime. Raises RequestError or AdmissionError for what it refuses.

        ``on_released`` is called exactly once when the runtime needs the request's place no more, and never when
        this raises. Of a request with media this takes as long as decoding and encoding them does.
        """
        if request.media:
            return self.start_with_media(request, on_released).run()
        if isinstance(request.prompt, SpeechPrompt):
            return self.require_speech().start_speech(request.prompt, AudioParams(), on_released)
        native_request, channel = self.builder.build(request)
        return self.hand_over(request, native_request, channel, on_released)

    def hand_over(
        self, request: GenerationRequest, native_request: Any, channel: StreamChannel, on_released: OnReleased
    ) -> RunningGeneration:
        """Start the native request that was built of ``request``."""
        if request.spoken is not None:
            return self.require_speech().start_answer(native_request, channel, request.spoken, on_released)
        return self.driver.start(native_request, channel, on_released)

    def require_speech(self) -> OmniSpeech:
        """Raises UnsupportedModalityError, a ValueError, for a model that does not speak, or not in this launch."""
        if self.speech is None:
            reason = self.capabilities.speech_refusal or f"the model {self.model_id} has no speech output"
            raise UnsupportedModalityError(reason, param="modalities")
        return self.speech

    def start_with_media(self, request: GenerationRequest, on_released: OnReleased) -> MediaStart:
        """Give the start of a request with media: ``run`` does what ``start`` does, and can be cancelled meanwhile."""
        return MediaStart(self, request, on_released)
