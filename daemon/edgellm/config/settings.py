"""Settings: everything an operator can set, validated once and frozen. Each field's description is its reference.

Tables are in modules of their own; all of them can be imported from here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from edgellm.config import limits
from edgellm.config.cache_location import default_cache_dir
from edgellm.config.engine_settings import EngineSettings
from edgellm.config.log_settings import LogSettings, RecordsSettings
from edgellm.config.media_settings import MediaSettings
from edgellm.config.model_settings import ModelSettings, SamplingSettings, SpeculativeSettings
from edgellm.config.section import Section
from edgellm.config.server_settings import PairingSettings, ServerSettings
from edgellm.config.serving_settings import AdmissionSettings, ResidencySettings, WorkerLimits

__all__ = [
    "DEFAULT_MODEL_SOURCE",
    "PAIRING_FOLDER_NAME",
    "AdmissionSettings",
    "EngineSettings",
    "LogSettings",
    "MediaSettings",
    "ModelSettings",
    "PairingSettings",
    "RecordsSettings",
    "ResidencySettings",
    "SamplingSettings",
    "Section",
    "ServerSettings",
    "Settings",
    "SpeculativeSettings",
    "WorkerLimits",
]

DEFAULT_MODEL_SOURCE = "smollm2-135m-instruct"
PAIRING_FOLDER_NAME = "pairing"


class Settings(Section):
    """The whole configuration."""

    cache_dir: Path = Field(
        default_factory=lambda: default_cache_dir(os.environ),
        description="Where models and bundles are kept. Unset: `$XDG_CACHE_HOME/edgellm`, else `~/.cache/edgellm`.",
    )
    admin_socket: Path | None = Field(
        default=None,
        description="Unix socket of `edgellm reload` and `pair-code`, for root and the daemon's own user. Unset: "
        "`edgellm/admin.sock` below `$XDG_RUNTIME_DIR`, else below `/run`.",
    )
    server: ServerSettings = Field(default=ServerSettings(), description="HTTP server.")
    media: MediaSettings = Field(default=MediaSettings(), description="Media in chats.")
    admission: AdmissionSettings = Field(default=AdmissionSettings(), description="Queue and deadlines.")
    engines: EngineSettings = Field(default=EngineSettings(), description="Engine bundles.")
    residency: ResidencySettings = Field(default=ResidencySettings(), description="Memory for models.")
    workers: WorkerLimits = Field(default=WorkerLimits(), description="Worker processes.")
    records: RecordsSettings = Field(default=RecordsSettings(), description="Records of requests.")
    pairing: PairingSettings = Field(default=PairingSettings(), description="Pairing of clients.")
    log: LogSettings = Field(default=LogSettings(), description="Log.")
    models: Annotated[tuple[ModelSettings, ...], Field(max_length=limits.MODELS_MAX)] = Field(
        default=(),
        description=f"Models to serve, one `[[models]]` table each. None: {DEFAULT_MODEL_SOURCE}.",
    )

    @field_validator("models")
    @classmethod
    def _names_differ(cls, models: tuple[ModelSettings, ...]) -> tuple[ModelSettings, ...]:
        names = [name for model in models for name in (model.name, *model.aliases) if name is not None]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'has the name "{name}" twice; each served model needs its own')
        return models

    @property
    def pairing_folder(self) -> Path:
        return self.pairing.folder or self.cache_dir / PAIRING_FOLDER_NAME

    @property
    def served_models(self) -> tuple[ModelSettings, ...]:
        return self.models or (ModelSettings(source=DEFAULT_MODEL_SOURCE),)
