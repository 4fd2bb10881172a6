"""The server on the local network: a service of mDNS that avahi announces, for as long as its file is there."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from edgellm.durable_file import write_durably
from edgellm.errors import AnnouncementError
from edgellm.host.paths import HostPaths
from edgellm.host.smoke import LocalAccess

SERVICE_FILE = "etc/avahi/services/edgellm.service"
SERVICE_TYPE = "_openai._tcp"
FILE_MODE = 0o644  # avahi reads it as a user of its own
_DEFAULT_PORTS = {"http": 80, "https": 443}
# avahi puts the machine's name in for %h, and another where the network has that name already.
_SERVICE = """<?xml version="1.0" standalone="no"?>
<!DOCTYPE service-group SYSTEM "avahi-service.dtd">
<!-- edgellm writes this file when it is ready, and removes it when it is not. -->
<service-group>
  <name replace-wildcards="yes">%h</name>
  <service>
    <type>{type}</type>
    <port>{port}</port>
    <txt-record>path=/v1</txt-record>
    <txt-record>scheme={scheme}</txt-record>
  </service>
</service-group>
"""


def announce(paths: HostPaths) -> str:
    """What came of it, for people. Raises AnnouncementError, or UpgradeError where no server answers."""
    access = LocalAccess.ask(paths)
    url = urlsplit(access.url)
    if _is_loopback(access.address):
        withdraw(paths)
        return f"{access.url} is for this machine alone: not announced"
    text = _SERVICE.format(type=SERVICE_TYPE, port=url.port or _DEFAULT_PORTS[url.scheme], scheme=url.scheme)
    file = paths.at(SERVICE_FILE)
    try:
        write_durably(file, text.encode(), FILE_MODE)
    except OSError as error:
        raise AnnouncementError(f"{file}: {error.strerror} — is avahi-daemon installed?") from None
    return f"announced as {SERVICE_TYPE}, port {url.port}"


def withdraw(paths: HostPaths) -> None:
    """Raises AnnouncementError."""
    file = paths.at(SERVICE_FILE)
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise AnnouncementError(f"{file}: {error.strerror}") from None


def _is_loopback(address: str) -> bool:
    """A server that does not say where it listens is not announced."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address in ("", "localhost")
