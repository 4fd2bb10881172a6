"""Media in the messages of a program that asks a model of its own process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgellm.errors import UnsupportedModalityError
from edgellm.media.media_input import MediaInput
from edgellm.media.media_source import MediaSource, source_of_part
from edgellm.media.source_files import check_counts, own_input
from edgellm.parsing.messages import KIND_OF_PART


def media_of_messages(
    messages: Sequence[Mapping[str, Any]], modalities: Sequence[str]
) -> tuple[Sequence[Mapping[str, Any]], list[MediaInput]]:
    """The messages with ``{"type": kind}`` for each part that brings more than text, and what those bring.

    Anything else is left as it is, also what is wrong with it. Raises RequestError.
    """
    sources: list[MediaSource] = []
    told: list[Mapping[str, Any]] = []
    for index, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, (list, tuple)) and any(map(_brings_media, content)):
            parts = [
                _told(part, f"messages[{index}].content[{number}]", modalities, sources)
                for number, part in enumerate(content)
            ]
            message = {**message, "content": parts}
        told.append(message)
    if not sources:
        return messages, []
    check_counts(sources)
    return told, [own_input(source) for source in sources]


def _brings_media(part: object) -> bool:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return isinstance(kind, str) and kind in KIND_OF_PART


def _told(part: Any, place: str, modalities: Sequence[str], sources: list[MediaSource]) -> Any:
    if not _brings_media(part):
        return part
    kind = KIND_OF_PART[part["type"]]
    if kind not in modalities:
        raise UnsupportedModalityError(f"{place}: this model takes no {kind} input", param=place)
    sources.append(source_of_part(part, kind, place))
    return {"type": kind}
