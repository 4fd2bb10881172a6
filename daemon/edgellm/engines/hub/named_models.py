"""Named models: models of a hub that have a name of their own here, since no package index carries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class NamedModel:
    """``size_bytes`` is what a download takes, as far as it is known beforehand."""

    name: str
    repository: str
    size_bytes: int
    licence: str
    summary: str


NAMED_MODELS: Final[Mapping[str, NamedModel]] = {
    model.name: model
    for model in (
        NamedModel(
            name="smolvlm-256m-instruct",
            repository="HuggingFaceTB/SmolVLM-256M-Instruct",
            size_bytes=517_000_000,
            licence="Apache-2.0",
            summary="SmolVLM 256M Instruct: text and images, from a Hugging Face hub",
        ),
    )
}
