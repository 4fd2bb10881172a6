"""Where edgellm keeps what it can make again: downloaded models and engine bundles."""

from __future__ import annotations

from pathlib import Path

from edgellm.config.cache_location import default_cache_dir

__all__ = ["default_cache_dir", "engines_dir", "models_dir"]

MODELS_FOLDER = "models"
ENGINES_FOLDER = "engines"


def models_dir(cache_dir: Path) -> Path:
    return cache_dir / MODELS_FOLDER


def engines_dir(cache_dir: Path) -> Path:
    return cache_dir / ENGINES_FOLDER
