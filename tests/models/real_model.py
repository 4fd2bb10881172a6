"""The real model of the tests: SmolLM2-135M-Instruct, as the catalogue has it. Tests that use it are marked model."""

from __future__ import annotations

import os
from pathlib import Path

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.source import resolve

CATALOGUE_NAME = "smollm2-135m-instruct"


def smollm2_file() -> Path:
    """Its GGUF file, fetched when it is not there yet."""
    return resolve(CATALOGUE_NAME, models_dir(default_cache_dir(os.environ))).path
