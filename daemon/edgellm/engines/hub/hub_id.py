"""HubId: a model on a hub, as an operator writes it: ``ORG/NAME``, ``ORG/NAME:FILE``, ``ORG/NAME@REVISION``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgellm.engines.hub.named_models import NAMED_MODELS

DEFAULT_REVISION = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")
_PATTERN = re.compile(
    r"(?P<repository>[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95})"
    r"(?::(?P<file>[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}))?"
    r"(?:@(?P<revision>[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}))?"
)


@dataclass(frozen=True, slots=True)
class HubId:
    """``file`` picks a GGUF file by its name or by its quantisation, and is empty for a safetensors checkpoint.

    ``revision`` is a branch, a tag or a commit.
    """

    repository: str
    file: str = ""
    revision: str = DEFAULT_REVISION

    @property
    def model_id(self) -> str:
        """What clients see: the revision is the operator's business."""
        return f"{self.repository}:{self.file}" if self.file else self.repository

    def __str__(self) -> str:
        return self.model_id if self.revision == DEFAULT_REVISION else f"{self.model_id}@{self.revision}"


def parse_hub_id(text: str) -> HubId | None:
    """None for what is neither the id of a repository nor the name of a model that is in one."""
    named = NAMED_MODELS.get(text)
    match = _PATTERN.fullmatch(text if named is None else named.repository)
    if match is None or "--" in match["repository"] or ".." in text:
        return None
    return HubId(match["repository"], match["file"] or "", match["revision"] or DEFAULT_REVISION)
