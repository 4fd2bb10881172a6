"""RequestEncoder: checks a request against a model and prepares its prompt, wherever that model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgellm.errors import RequestError, UnsupportedModalityError, UnsupportedParameterError
from edgellm.runtime.audio_front_end import AudioFrontEnd
from edgellm.runtime.bundle_codec import bundle_codec
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import GenerationRequest, SpeechPrompt
from edgellm.runtime.length_limits import LengthLimits
from edgellm.runtime.process_memory import return_freed_memory
from edgellm.runtime.prompt_front_end import MeasuringFrontEnd, PromptFrontEnd, TokenisingFrontEnd
from edgellm.runtime.speech_front_end import (
    SpeechFrontEnd,
    check_speech_prompt,
    check_spoken_output,
    check_talker_speed,
    require_speech,
)


@dataclass(frozen=True, slots=True)
class RequestEncoder:
    """Thread-safe."""

    capabilities: Capabilities
    front_end: PromptFrontEnd

    @property
    def tokenises(self) -> bool:
        """Prompts become token ids here; otherwise the runtime renders and tokenises for itself."""
        return isinstance(self.front_end, TokenisingFrontEnd)

    def encode(self, request: GenerationRequest) -> GenerationRequest:
        """Give the request as it will run. Raises RequestError for what this model cannot do."""
        if isinstance(request.prompt, SpeechPrompt) and not self.capabilities.only_speaks:
            self._check_speech(request.prompt)
            return request
        if request.spoken is not None:
            require_speech(self.capabilities, "modalities")
            check_spoken_output(request.spoken, self.capabilities.speech)
        guide = request.params.guide
        if guide is not None and guide.type not in self.capabilities.guided_decoding:
            param = f"guided_decoding.{guide.type}"
            raise UnsupportedParameterError(f"this runtime cannot enforce {param}", param=param)
        for token_id in request.params.bias_by_token_id:
            if token_id >= self.capabilities.vocab_size:
                param = f"logit_bias.{token_id}"
                raise RequestError(f"{param}: this model has no such token", param=param)
        if not request.media:
            return self.front_end.encode(request)
        # How many tokens an image has is known where it is decoded.
        kinds = self.capabilities.input_modalities
        for each in request.media:
            if each.kind not in kinds:
                raise UnsupportedModalityError(f"{each.place}: this model takes no {each.kind} input", param=each.place)
        return request

    def _check_speech(self, prompt: SpeechPrompt) -> None:
        require_speech(self.capabilities, "model")
        check_speech_prompt(prompt, self.capabilities.speech)
        check_talker_speed(prompt.speed)

    def count(self, request: GenerationRequest) -> int:
        """Give how many tokens the prompt has."""
        return self.front_end.count(request)


def encoder_of_bundle(
    bundle_dir: Path, capabilities: Capabilities, count_tokens: Callable[[GenerationRequest], int | None]
) -> RequestEncoder:
    """The encoder of a model that is loaded elsewhere; ``count_tokens`` asks the runtime, from a thread that may wait.

    Raises CheckpointError for a bundle whose tokenizer or template cannot be read.
    """
    if capabilities.transcription.languages:
        return RequestEncoder(capabilities, AudioFrontEnd(capabilities.transcription))
    if capabilities.only_speaks:
        return RequestEncoder(capabilities, SpeechFrontEnd(capabilities.speech))
    limits = LengthLimits(capabilities.max_input_len, capabilities.max_kv_cache_capacity)
    if capabilities.runtime == "native":
        codec = bundle_codec(bundle_dir)
        return_freed_memory()  # parsing a tokenizer frees about as much as it leaves
        return RequestEncoder(capabilities, TokenisingFrontEnd(codec, limits, capabilities.vocab_size))
    return RequestEncoder(capabilities, MeasuringFrontEnd(limits, count_tokens))
