"""Usage: exact token counts, as the runtime gave them."""

from __future__ import annotations

from typing import Any

from edgellm.runtime.outputs import StreamDelta


class Usage:
    """Counts of prompts over all choices. A prompt counts once, however many choices were made of it.

    Generated tokens are counted in one place, the report of the generation.
    """

    def __init__(self, choices_per_prompt: int) -> None:
        self._choices_per_prompt = choices_per_prompt
        self._prompt_tokens: dict[int, int] = {}
        self._cached_tokens: dict[int, int] = {}
        self._audio_frames = 0

    def take(self, index: int, delta: StreamDelta) -> None:
        self._audio_frames += delta.audio_frames
        # Later choices of a prompt find it in the cache by the first one's doing: that is no saving to report.
        if index % self._choices_per_prompt == 0:
            if delta.prompt_tokens is not None:
                self._prompt_tokens[index] = delta.prompt_tokens
            if delta.cached_tokens is not None:
                self._cached_tokens[index] = delta.cached_tokens

    def as_object(self, completion_tokens: int, reasoning_tokens: int = 0) -> dict[str, Any]:
        prompt_tokens = sum(self._prompt_tokens.values())
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": sum(self._cached_tokens.values())},
            "completion_tokens_details": {
                "reasoning_tokens": reasoning_tokens,
                **({"audio_tokens": self._audio_frames} if self._audio_frames else {}),
            },
        }
