"""``edgellm announce``: what edgellm-announce.service does while the server is ready."""

from __future__ import annotations

import argparse
import os

from edgellm.errors import ConfigError
from edgellm.host.announcement import announce, withdraw
from edgellm.host.paths import HostPaths


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--withdraw", action="store_true", help="announce it no more")


def run(namespace: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise ConfigError("edgellm announce writes a file of avahi's — run it as root")
    if namespace.withdraw:
        withdraw(HostPaths())
    else:
        print(announce(HostPaths()))
    return 0
