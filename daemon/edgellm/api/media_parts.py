"""MediaParts: the parts of a request that bring more than text, collected in the order that its model gets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgellm.errors import RequestError, UnsupportedModalityError
from edgellm.media.media_input import MediaKind
from edgellm.media.media_source import MediaSource, source_of_block, source_of_part
from edgellm.parsing.messages import KIND_OF_PART

_ROLES = ("user", "tool")  # templates show media of nobody else


class MediaParts:
    """``modalities`` are what the model takes. Before it is known they are None, and parts wait for ``check``."""

    def __init__(self, modalities: Sequence[str] | None = None) -> None:
        self._modalities = modalities
        self._waiting: list[tuple[MediaKind, str, str, Callable[[], MediaSource]]] = []
        self.sources: list[MediaSource] = []

    @property
    def places(self) -> list[str]:
        return [source.place for source in self.sources]

    def part(self, part: Mapping[str, Any], place: str, role: str) -> dict[str, Any]:
        """What stands for a part of OpenAI's chats or responses in its message. Raises RequestError."""
        kind = KIND_OF_PART[part["type"]]
        return self._add(kind, place, role, lambda: source_of_part(part, kind, place))

    def image_block(self, source: object, place: str) -> dict[str, Any]:
        """The same for an Anthropic image block, which only users have."""
        return self._add("image", place, "user", lambda: source_of_block(source, place))

    def check(self, modalities: Sequence[str]) -> None:
        """Find the sources of all parts that wait. Raises RequestError for the first that is wrong."""
        self._modalities = modalities
        for source in self.sources:
            self._require(source.kind, source.place, modalities)
        waiting, self._waiting = self._waiting, []
        for kind, place, role, source_of in waiting:
            self._add(kind, place, role, source_of)

    def _add(self, kind: MediaKind, place: str, role: str, source_of: Callable[[], MediaSource]) -> dict[str, Any]:
        if self._modalities is None:
            self._waiting.append((kind, place, role, source_of))
        else:
            self._require(kind, place, self._modalities)
            if role not in _ROLES:
                raise RequestError(f"{place}: a message of the {role} brings text alone.", param=place)
            self.sources.append(source_of())
        return {"type": kind}

    def _require(self, kind: MediaKind, place: str, modalities: Sequence[str]) -> None:
        if kind not in modalities:
            raise UnsupportedModalityError(f"{place}: this model takes no {kind} input.", param=place)
