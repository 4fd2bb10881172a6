"""``edgellm report``: one archive for whoever is to help, without keys and prompts."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from edgellm.errors import ConfigError
from edgellm.host.installed_mode import releases_of
from edgellm.host.option_types import named_path, whole_number
from edgellm.host.paths import HostPaths
from edgellm.host.support_report import ARCHIVE_MODE, JOURNAL_LINES_MAX, SupportReport, write_report

MEGABYTE_BYTES = 1_000_000
JOURNAL_LINES_LIMIT = 1_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=named_path,
        help="the archive to write (default: edgellm-report-TIME.tar.gz here)",
    )
    parser.add_argument(
        "--journal-lines",
        metavar="N",
        type=whole_number("lines", 1, JOURNAL_LINES_LIMIT),
        default=JOURNAL_LINES_MAX,
        help=f"how much of each unit's journal (default: {JOURNAL_LINES_MAX})",
    )


def run(namespace: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise ConfigError("edgellm report reads the journal and the releases — run it as root")
    paths = HostPaths()
    try:
        releases = releases_of(paths)
    except ConfigError:
        releases = None  # a board where the installation went wrong is one to report on
    folder = f"edgellm-report-{time.strftime('%Y%m%d-%H%M%S')}"
    output: Path = namespace.output or Path(f"{folder}.tar.gz")
    report = SupportReport(paths, releases, journal_lines=namespace.journal_lines)
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, ARCHIVE_MODE)
    except FileExistsError:
        raise ConfigError(f"--output {output} is there already — choose another name") from None
    except OSError as error:
        raise ConfigError(f"--output {output}: {error.strerror}") from None
    try:
        with open(descriptor, "wb") as stream:
            names = write_report(stream, report, folder)
    except OSError as error:
        output.unlink(missing_ok=True)
        raise ConfigError(f"--output {output}: {error.strerror}") from None
    print(f"{output}  {output.stat().st_size / MEGABYTE_BYTES:.2f} MB, for root alone. In it:")
    print("\n".join(f"  {name}" for name in sorted(names)))
    print("Keys, tokens and prompts are not; README.txt says what else is left out. Read it before you send it.")
    return 0
