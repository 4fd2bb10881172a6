"""``edgellm tls``: makes a private certificate authority and the certificate of this machine."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.host.option_types import named_path
from edgellm.service.tls import NEW_AUTHORITY_OPTION

if TYPE_CHECKING:
    from edgellm.service.private_ca import PrivateCa

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
        NEW_AUTHORITY_OPTION,
        action="store_true",
        help="make another authority in the place of the one that is there, such as one that has ended or was made "
        "while the clock was ahead; clients are to be given it anew",
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
    if namespace.if_needed and not namespace.new_authority and authority.is_right_for(namespace.name):
        print(f"kept the certificate {authority.server_certificate}")
        return 0
    names = certificate_names(namespace.name)
    earlier = authority.present_authority()
    is_new = authority.init(names, new_authority=namespace.new_authority)
    print(f"{'made' if is_new else 'kept'} the authority {authority.ca_certificate}")
    print(f"made the certificate of {', '.join(names)}")
    _show_how_to_serve(authority, earlier)
    if is_new and earlier is not None:
        print(
            "\nclients that trust the earlier authority are to be paired again (edgellm pair-code), or given this file"
        )
    print(f"\nfor clients, with a copy of that one file:\n\nexport SSL_CERT_FILE={authority.ca_certificate}")
    return 0


def _show_how_to_serve(authority: PrivateCa, earlier_authority: bytes | None) -> None:
    from edgellm.service.credentials import (
        AUTHORITY,
        AUTHORITY_FOLDER,
        CERTIFICATE,
        FOLDER,
        KEY,
        UNIT_FOLDER,
        give_certificate,
    )

    files = {CERTIFICATE: authority.server_certificate, KEY: authority.server_key, AUTHORITY: authority.ca_certificate}
    settings = {CERTIFICATE: "tls_certificate_file", KEY: "tls_key_file", AUTHORITY: "tls_authority_file"}
    of_service = authority.folder == AUTHORITY_FOLDER and FOLDER.is_dir()
    if of_service and give_certificate(authority, FOLDER, earlier_authority):
        print(f"put copies into {FOLDER}, which the service may read: it serves the new certificate at once, where it")
        print("serves one already; the first one when it is started again")
    elif of_service:
        print(f"{FOLDER} has a certificate of another authority, which was left alone; to serve this one:\n")
        for name, file in files.items():
            print(f"install -m 640 -g edgellm {file} {FOLDER}/{name}")
    else:
        files.pop(AUTHORITY)
    print("\nfor the configuration file", end="")
    print(" (a running server takes a renewed certificate by itself)" if not of_service else "", end=":\n\n[server]\n")
    for name, file in files.items():
        print(f'{settings[name]} = "{UNIT_FOLDER / name if of_service else file}"')


def _default_folder() -> Path:
    from edgellm.config.load import default_files

    personal, of_system = default_files()
    return (of_system if os.geteuid() == 0 else personal).parent / FOLDER_NAME
