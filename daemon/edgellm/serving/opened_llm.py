"""An LLM of this process as an opened model: its lane, and the sampling defaults its checkpoint declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from edgellm.config.regular_file import open_regular
from edgellm.engines.bundle import GENERATION_CONFIG_FILE
from edgellm.runtime.llm import LLM
from edgellm.serving.in_process_lane import InProcessLane
from edgellm.serving.model_spec import OpenedModel

_GENERATION_CONFIG_BYTES_MAX = 2**20


def opened_llm(llm: LLM) -> OpenedModel:
    """The lane owns the LLM and closes it."""
    return OpenedModel([InProcessLane(llm)], read_generation_config(Path(llm.bundle_dir)))


def read_generation_config(bundle_dir: Path) -> Mapping[str, object]:
    """Empty where the bundle has none that can be read: defaults of a checkpoint are no reason not to serve it."""
    try:
        with open_regular(bundle_dir / GENERATION_CONFIG_FILE) as stream:
            config = json.loads(stream.read(_GENERATION_CONFIG_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}
