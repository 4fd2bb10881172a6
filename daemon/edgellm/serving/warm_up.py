"""Warm-up: the end of loading. A lane counts once it has said something."""

from __future__ import annotations

import asyncio

from edgellm.errors import EdgeLLMError
from edgellm.media.media_file import silence
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import AudioPrompt, GenerationRequest, Prompt, SpeechPrompt, TextPrompt
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.lane import Lane

WARM_UP_SECONDS = 1


async def produce_a_token(lane: Lane) -> None:
    """Raises what the lane could not generate with."""
    params = SamplingParams(temperature=0.0, max_tokens=1, reuse_context=False, cache_generated_tokens=False)
    request = await lane.encode(GenerationRequest(_prompt_for(lane.capabilities), params))
    answer = _FirstAnswer()
    await lane.submit(request, answer)
    await answer.end


def _prompt_for(capabilities: Capabilities) -> Prompt:
    if capabilities.transcription.languages:
        return AudioPrompt(silence(WARM_UP_SECONDS))
    if capabilities.only_speaks:
        return SpeechPrompt("Hello", capabilities.speech.default_voice)
    return TextPrompt("Hello")


class _FirstAnswer:
    """Receives the answer that nobody reads."""

    def __init__(self) -> None:
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, delta: StreamDelta) -> None:
        """What a model says first is of no interest; that it ends well is."""

    def take_text(self, text: str, token_ids: list[int]) -> None:
        """As ``take``."""

    def ended(self, error: EdgeLLMError | None) -> None:
        if self.end.done():
            return
        if error is not None:
            self.end.set_exception(error)
        else:
            self.end.set_result(None)
