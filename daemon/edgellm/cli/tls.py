"""``edgellm tls``: makes a private certificate authority and the certificate of this machine."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from edgellm.host.option_types import named_path

FOLDER_NAME = "tls"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="init", required=True)
    init = actions.add_parser(
        "init", help="make an authority where there is none, and a new certificate for this machine's names"
    )
    init.add_argument(
        "--folder",
        metavar="FOLDER",
        type=named_path,
        help="where its files go (default: tls beside the configuration file)",
    )
    init.add_argument(
        "--name", metavar="NAME", action="append", default=[], help="a further DNS name or address of the server"
    )

    init.add_argument(
        "--if-needed",
        action="store_true",
        help="keep a certificate of this authority that has every --name, fits its key and does not end within 30 days",
    )


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.host_names import certificate_names
    from edgellm.service.private_ca import PrivateCa

    authority = PrivateCa((namespace.folder or _default_folder()).absolute())
    if namespace.if_needed and authority.is_right_for(namespace.name):
        print(f"kept the certificate {authority.server_certificate}")
        return 0
    names = certificate_names(namespace.name)
    is_new = authority.init(names)
    print(f"{'made' if is_new else 'kept'} the authority {authority.ca_certificate}")
    print(f"made the certificate of {', '.join(names)}")
    print("\nfor the configuration file (a running server takes a renewed certificate by itself):\n\n[server]")
    print(f'tls_certificate_file = "{authority.server_certificate}"')
    print(f'tls_key_file = "{authority.server_key}"')
    print(f"\nfor clients, with a copy of that one file:\n\nexport SSL_CERT_FILE={authority.ca_certificate}")
    return 0


def _default_folder() -> Path:
    from edgellm.config.load import default_files

    personal, of_system = default_files()
    return (of_system if os.geteuid() == 0 else personal).parent / FOLDER_NAME
