"""The table of engine bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from edgellm.config import limits
from edgellm.config.cache_location import BAKED_ENGINES_DIR
from edgellm.config.section import Flag, Number, Section, Text


class EngineSettings(Section):
    """Engine bundles: where they are looked for, how many are kept, and whether a start may build one."""

    cache_max_size_gb: Annotated[Number, Field(gt=0, le=limits.ENGINE_CACHE_GB_MAX)] = Field(
        default=50.0,
        description="Most the engines below `cache_dir` may take, in GB of 2^30 bytes. Beyond it the least recently "
        "used go; pinned and loaded ones stay.",
    )
    build_on_start: Flag = Field(
        default=True,
        description="Build a missing engine, and fetch a missing model, when a model is loaded. Off: the start ends "
        "with exit code 72, or 66 for a model, and `edgellm engine build` makes it.",
    )
    clear_on_start: Flag = Field(
        default=False, description="Remove every engine below `cache_dir` at the start, so that all are built anew."
    )
    read_only_dirs: tuple[Text, ...] = Field(
        default=(BAKED_ENGINES_DIR,),
        description="Folders of engines that came with an image: searched first, used in place, never changed.",
    )
    trusted_keys_file: Path | None = Field(
        default=None,
        description="Keys that engine archives must be signed with to be imported, one a line as "
        "`NAME:ed25519:BASE64`. Unset: archives are checked against their own manifest alone.",
    )
