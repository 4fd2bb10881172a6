"""A model loaded into the chat's own process: no server, the same streaming."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

from edgellm.cli.arguments import load_from_arguments
from edgellm.cli.progress_line import ProgressLine
from edgellm.errors import UnusableOutputError

if TYPE_CHECKING:
    from edgellm.runtime.sampling_params import SamplingParams


class LocalModel:
    """Loads on construction; sampling that was not asked for is the Python API's."""

    def __init__(self, source: str, cache_dir: str, *, temperature: float | None, max_tokens: int | None) -> None:
        from edgellm.runtime.llm import LLM

        self._source = source
        with ProgressLine() as line:
            self._llm = LLM(source, cache_dir=cache_dir, on_progress=line.show)
        self._params = _params(temperature, max_tokens)

    @classmethod
    def from_arguments(cls, namespace: argparse.Namespace) -> LocalModel:
        cache_dir = load_from_arguments(namespace).settings.cache_dir
        return cls(namespace.local, str(cache_dir), temperature=namespace.temperature, max_tokens=namespace.max_tokens)

    @property
    def name(self) -> str:
        return f"{self._llm.model_id} in this process"

    def answer(self, messages: list[dict[str, str]]) -> Generator[str]:
        from edgellm.serving.load_failure import damaged_weights

        try:
            with closing(self._llm.generate_stream(messages, self._params)) as stream:
                for delta in stream:
                    if delta.text:
                        yield delta.text
        except UnusableOutputError as error:
            raise damaged_weights(error, self._llm.model_id, self._source) from None

    def close(self) -> None:
        self._llm.close()


def _params(temperature: float | None, max_tokens: int | None) -> SamplingParams:
    from edgellm.runtime.sampling_params import SamplingParams

    asked = {"temperature": temperature, "max_tokens": max_tokens}
    return SamplingParams(**{name: value for name, value in asked.items() if value is not None})  # type: ignore[arg-type]  # each value is of its field's type
