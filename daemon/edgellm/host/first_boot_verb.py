"""``edgellm first-boot``: makes a board of an image that was just flashed; later boots find it done."""

from __future__ import annotations

import argparse
import os

from edgellm.errors import ConfigError
from edgellm.host.first_boot import FirstBoot, facts
from edgellm.host.first_boot_state import BootStep
from edgellm.host.pairing_notice import PairingNotice
from edgellm.host.paths import HostPaths


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--show-code",
        action="store_true",
        help="what edgellm-pairing-notice.service does: show a pairing code on the console until a client has used it",
    )
    what.add_argument("--status", action="store_true", help="show the steps that were taken, as JSON")


def run(namespace: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise ConfigError("edgellm first-boot changes the system — run it as root")
    paths = HostPaths()
    if namespace.status:
        print(facts(paths))
    elif namespace.show_code:
        PairingNotice(paths).show_until_used()
    else:
        FirstBoot(paths, _say).run()
    return 0


def _say(step: BootStep, text: str, seconds: float) -> None:
    print(f"first boot: {step.value} in {seconds:.1f} s: {text}", flush=True)
