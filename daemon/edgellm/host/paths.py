"""Where things are on a host. ``root`` is / but in tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HostPaths:
    root: Path = Path("/")

    def at(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    @property
    def state(self) -> Path:
        """Root's own: nothing that the service's user can write decides what is started next."""
        return self.at("var/lib/edgellm-host")

    @property
    def current_environment(self) -> Path:
        """A link to the running release, or the folder of a first installation."""
        return self.at("opt/edgellm")

    @property
    def environments(self) -> Path:
        return self.at("opt/edgellm-releases")

    @property
    def configuration(self) -> Path:
        return self.at("etc/edgellm/edgellm.toml")

    @property
    def trusted_keys(self) -> Path:
        return self.at("etc/edgellm/trusted-keys")

    @property
    def installed_record(self) -> Path:
        """What `edgellm install` put onto this host."""
        return self.at("usr/local/lib/edgellm/installed.json")

    @property
    def service_data(self) -> Path:
        return self.at("var/lib/edgellm")

    @property
    def admin_socket(self) -> Path:
        return self.at("run/edgellm/admin.sock")
