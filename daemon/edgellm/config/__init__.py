"""Configuration: one frozen object, made once from flags, environment, file and defaults."""

from edgellm.config.load import Flag, LoadedSettings, load_settings
from edgellm.config.settings import (
    AdmissionSettings,
    LogSettings,
    ModelSettings,
    ResidencySettings,
    SamplingSettings,
    ServerSettings,
    Settings,
)

__all__ = [
    "AdmissionSettings",
    "Flag",
    "LoadedSettings",
    "LogSettings",
    "ModelSettings",
    "ResidencySettings",
    "SamplingSettings",
    "ServerSettings",
    "Settings",
    "load_settings",
]
