"""Where edgellm keeps what it can make again: downloaded models and engine bundles."""

from __future__ import annotations

import os
from pathlib import Path

from edgellm.config.cache_location import default_cache_dir
from edgellm.errors import ConfigError

__all__ = ["default_cache_dir", "engines_dir", "models_dir", "require_folder"]

MODELS_FOLDER = "models"
ENGINES_FOLDER = "engines"


def require_folder(cache_dir: Path) -> None:
    """Raise ConfigError where a file is in the place of ``cache_dir`` or of a folder above it."""
    for path in (cache_dir, *cache_dir.parents):
        if os.path.isdir(path):
            return
        if os.path.exists(path):
            raise ConfigError(
                f"cache_dir {cache_dir}: {path} is not a folder — name one with --cache-dir or EDGELLM_CACHE_DIR, or "
                "in the configuration"
            )


def models_dir(cache_dir: Path) -> Path:
    return cache_dir / MODELS_FOLDER


def engines_dir(cache_dir: Path) -> Path:
    return cache_dir / ENGINES_FOLDER
