"""Which kind of release this host runs, by what `edgellm install` wrote down."""

from __future__ import annotations

import json

from edgellm.errors import ConfigError
from edgellm.host.container_releases import ContainerReleases
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind
from edgellm.host.releases import Releases
from edgellm.host.venv_releases import VenvReleases


def installed_kind(paths: HostPaths) -> Kind:
    """Raises ConfigError where edgellm is not installed."""
    try:
        return Kind(json.loads(paths.installed_record.read_bytes())["mode"])
    except FileNotFoundError:
        raise ConfigError(
            f"{paths.installed_record} is not there: edgellm is not installed here — run edgellm install first"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{paths.installed_record} is damaged — run edgellm install again") from None


def releases_of(paths: HostPaths) -> Releases:
    """Raises ConfigError where edgellm is not installed."""
    return releases_of_kind(installed_kind(paths), paths)


def releases_of_kind(kind: Kind, paths: HostPaths) -> Releases:
    return VenvReleases(paths) if kind is Kind.VENV else ContainerReleases(paths)
