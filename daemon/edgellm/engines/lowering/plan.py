"""LoweringPlan: what it takes to make a bundle of one source, known before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from edgellm.engines.bundle import Bundle
from edgellm.engines.progress import ProgressCallback
from edgellm.engines.resources.native_memory import NativeShape
from edgellm.errors import CheckpointError


class LoweringPlan(Protocol):
    """``checkpoint_digest`` identifies the source whatever its path; ``output_bytes`` is what the bundle will take."""

    @property
    def checkpoint_digest(self) -> str: ...

    @property
    def quantisation(self) -> str:
        """What ``auto`` came to: "as-is" where the source decides."""
        ...

    @property
    def output_bytes(self) -> int: ...

    @property
    def runtime_shape(self) -> NativeShape:
        """What the memory of a load of the bundle will depend on."""
        ...

    def write(self, directory: Path, on_progress: ProgressCallback) -> Bundle:
        """Fill the empty ``directory`` with every file of the bundle."""
        ...


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")


def write_text(path: Path, text: str) -> None:
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError:
        raise CheckpointError(f"the checkpoint's {path.name} holds a lone surrogate, which is not valid text") from None
    with path.open("xb") as stream:
        stream.write(content)
