"""The store of engines that the settings name, for the daemon and the command alike."""

from __future__ import annotations

from pathlib import Path

from edgellm.config import Settings
from edgellm.engines.cache_directory import engines_dir, models_dir, require_folder
from edgellm.engines.store import BYTES_PER_GIB, Store


def engine_store(settings: Settings) -> Store:
    """Raises ConfigError for a cache that is not a folder."""
    require_folder(settings.cache_dir)
    return Store(
        engines_dir(settings.cache_dir),
        [Path(folder).expanduser() for folder in settings.engines.read_only_dirs],
        max_size_bytes=int(settings.engines.cache_max_size_gb * BYTES_PER_GIB),
        models=models_dir(settings.cache_dir),
    )
