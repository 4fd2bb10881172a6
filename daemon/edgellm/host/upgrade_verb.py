"""``edgellm upgrade``: another release takes the running one's place, or everything is as it was before."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgellm.errors import (
    ConfigError,
    EdgeLLMError,
    ServiceDownError,
    UpgradeReturnedError,
    UsageError,
)
from edgellm.host.disk_room import write_failure
from edgellm.host.host_state import HostState
from edgellm.host.installed_files import installed_kind as kind_of_units
from edgellm.host.installed_mode import installed_kind, releases_of, releases_of_kind
from edgellm.host.option_types import duration, named_path, whole_number
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind
from edgellm.host.releases import Releases
from edgellm.host.signature import keys_in
from edgellm.host.source import open_source
from edgellm.host.target import Target
from edgellm.host.upgrade import KEPT_RELEASES, READY_DEADLINE_SECONDS, Upgrade
from edgellm.host.upgrade_report import StepReport, UpgradeReport, edits_line, kept_lines, report_line, serving_line
from edgellm.host.versions import Version

KEPT_RELEASES_MAX = 100
READY_DEADLINE_SECONDS_MAX = 7 * 86_400.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        nargs="?",
        help="a container image's archive or NAME@sha256:DIGEST, a wheel or a folder of wheels, or a bundle's folder",
    )
    parser.add_argument(
        "--rollback",
        metavar="RELEASE",
        nargs="?",
        const="",
        help="go to a release that was kept, by its id or version (default: the one that served last before this one: "
        "after a rollback that is the release just left, so that a second rollback goes forward to it again; to go "
        "further back, name one of --list)",
    )
    parser.add_argument(
        "--install",
        metavar="venv|container",
        choices=[kind.value for kind in Kind],
        help="install from SOURCE in this mode, where edgellm is not installed yet",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="show the releases that are kept, the one that served last first, where --rollback goes, the last upgrade",
    )
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="only put SOURCE, or the release of --rollback, beside the one that serves",
    )
    parser.add_argument(
        "--prewarm", action="store_true", help="fetch, import and build what the prepared release needs"
    )
    parser.add_argument("--resume", action="store_true", help="go on with an upgrade that was prepared, or interrupted")
    parser.add_argument(
        "--abandon",
        action="store_true",
        help="undo an upgrade that was prepared, or interrupted: what served before serves",
    )
    parser.add_argument(
        "--recover",
        action="store_true",
        help="what edgellm-upgrade-recover.service does at boot: put back the release of before an interrupted upgrade",
    )
    parser.add_argument(
        "--raise-floor", metavar="VERSION", help="from now on refuse versions older than this; it is never lowered"
    )
    parser.add_argument(
        "--keep",
        metavar="N",
        type=whole_number("releases", 0, KEPT_RELEASES_MAX),
        default=KEPT_RELEASES,
        help=f"how many earlier releases stay (default: {KEPT_RELEASES})",
    )
    parser.add_argument(
        "--trust",
        metavar="KEY.pub",
        type=named_path,
        help="a publisher's public key that SOURCE may be signed with; once SOURCE is taken, this machine trusts it",
    )
    parser.add_argument("--sha256", metavar="HEX", help="what SOURCE must be, where it is one file")
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=named_path,
        help="the configuration that comes with the release, put in its place",
    )
    parser.add_argument(
        "--ready-timeout",
        metavar="SECONDS",
        type=duration("seconds", READY_DEADLINE_SECONDS_MAX),
        default=READY_DEADLINE_SECONDS,
        help=f"how long the release may take until it is ready (default: {READY_DEADLINE_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each step, and one at the end")


def run(namespace: argparse.Namespace) -> int:
    chosen = [
        name
        for name, is_chosen in (
            ("SOURCE", namespace.source is not None),
            ("--rollback", namespace.rollback is not None),
            ("--list", namespace.list),
            ("--prewarm", namespace.prewarm),
            ("--resume", namespace.resume),
            ("--abandon", namespace.abandon),
            ("--recover", namespace.recover),
            ("--raise-floor", namespace.raise_floor is not None),
        )
        if is_chosen
    ]
    if len(chosen) != 1:
        said = "nothing is said to do" if not chosen else f"{' and '.join(chosen)} exclude each other"
        raise UsageError(f"{said} — see edgellm upgrade --help")
    if os.geteuid() != 0:
        raise ConfigError("edgellm upgrade changes the system — run it as root")
    if namespace.prepare and (namespace.install is not None or not {"SOURCE", "--rollback"} & {*chosen}):
        raise UsageError("--prepare needs a SOURCE or --rollback, and edgellm installed — see edgellm upgrade --help")
    if namespace.install is not None and namespace.source is None:
        raise UsageError("--install needs a SOURCE — see edgellm upgrade --help")
    if namespace.trust is not None:
        _require_key(namespace.trust, namespace.source)
    paths = HostPaths()
    state = HostState(paths)
    if namespace.raise_floor is not None:
        return _raise_floor(state, namespace.raise_floor, releases_of(paths))
    releases = releases_of(paths) if namespace.install is None else releases_of_kind(Kind(namespace.install), paths)
    if namespace.install is not None and kind_of_units(Target(paths.root)) is not None:
        raise ConfigError("edgellm is installed here already — leave --install out, to upgrade it")
    if namespace.list:
        return _list(state, releases, as_json=namespace.json)
    # A terminal that closes ends no upgrade halfway; an interruption puts back what was.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    output = _Output(as_json=namespace.json)
    try:
        with state.locked():
            upgrade = Upgrade(paths, state, releases, output.step, ready_deadline_seconds=namespace.ready_timeout)
            return output.result(_go(namespace, paths, upgrade))
    except OSError as error:
        raise write_failure(paths.state, error) from None


def _require_key(file: Path, source: str | None) -> None:
    if source is None:
        raise UsageError("--trust needs a SOURCE — see edgellm upgrade --help")
    if not file.is_file():
        raise ConfigError(f"--trust {file} is not there")
    if not keys_in(file):
        raise ConfigError(f"--trust {file} holds no public key of ssh-keygen — give the .pub file")


def _go(namespace: argparse.Namespace, paths: HostPaths, upgrade: Upgrade) -> UpgradeReport | None:
    kind = installed_kind(paths) if namespace.install is None else Kind(namespace.install)
    if namespace.recover:
        return upgrade.recover()
    if namespace.resume:
        return upgrade.resume(lambda text: open_source(text, kind, paths, sha256=namespace.sha256))
    if namespace.prewarm:
        return upgrade.prewarm()
    if namespace.abandon:
        return upgrade.abandon()
    if namespace.rollback is not None:
        return upgrade.back_to(namespace.rollback or None, keep=namespace.keep, only_prepare=namespace.prepare)
    if namespace.config is not None and not namespace.config.is_file():
        raise ConfigError(f"--config {namespace.config} is not there")
    source = open_source(namespace.source, kind, paths, sha256=namespace.sha256, publisher_key=namespace.trust)
    if namespace.install is not None:
        return upgrade.first(source)
    text = namespace.source if source.pinned_name else str(Path(namespace.source).absolute())
    return upgrade.to_source(
        source, text, keep=namespace.keep, config_file=namespace.config, only_prepare=namespace.prepare
    )


def _raise_floor(state: HostState, text: str, releases: Releases) -> int:
    try:
        version = Version(text)
    except ValueError as error:
        raise UsageError(f"--raise-floor: {error}") from None
    serving = releases.current().version
    if version > Version(serving):
        raise UsageError(
            f"--raise-floor {text} is above {serving}, which serves: a floor is never lowered, and this would refuse "
            "the way back to it"
        )
    with state.locked():
        print(f"versions older than {state.raise_floor(version)} are refused")
    return 0


def _list(state: HostState, releases: Releases, *, as_json: bool) -> int:
    current = releases.current()
    kept = [one for one in state.releases() if one.id != current.id]
    here = set(releases.present())
    floor, last, journey = state.floor(), state.last_report(), state.journey()
    if as_json:
        value = {
            "current": current.as_json(),
            "kept": [{**one.as_json(), "present": one.id in here} for one in kept],
            "version_floor": None if floor is None else str(floor),
            "under_way": None if journey is None else journey.as_json(),
            "last": last,
        }
        print(json.dumps(value, indent=1, ensure_ascii=False))
        return 0
    print(f"{current.id}  serves")
    for line in kept_lines([one.id for one in reversed(kept)], here, last):
        print(line)
    if floor is not None:
        print(f"versions older than {floor} are refused")
    if journey is not None and journey.waits:
        release = "a release" if journey.to_release is None else journey.to_release.id
        print(f"{release} is prepared: edgellm upgrade --resume goes on, --abandon undoes it")
    elif journey is not None:
        print(f"an upgrade was interrupted at {journey.last}: edgellm upgrade --resume goes on")
    if last is not None:
        print(": ".join(["last", *(str(last[name]) for name in ("result", "reason") if last.get(name))]))
        if last.get("edits_folder"):
            print(f"it serves {edits_line(last)}")
    return 0


class _Output:
    """Somebody may have stopped listening: an upgrade goes on without."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def step(self, report: StepReport) -> None:
        self._say(report.as_json())

    def result(self, report: UpgradeReport | None) -> int:
        if report is None:
            return 0
        value = report.as_json()
        for note in () if self._as_json else report.notes:
            self._write(note)
        self._say(value)
        if report.reason is not None and not self._as_json:
            for line in report.journal:
                self._write(f"  | {line}")
        error: EdgeLLMError | None = None
        if report.result == "returned":
            error = UpgradeReturnedError(f"{report.step}: {report.reason} — {serving_line(report.serving)}")
        elif report.result == "down":
            error = ServiceDownError(f"{report.step}: {report.reason} — see journalctl -u edgellm")
        if error is not None:
            sys.stderr.write(f"edgellm: {' '.join(str(error).split())}\n")
        return report.exit_code

    def _say(self, value: Mapping[str, Any]) -> None:
        self._write(json.dumps(value, ensure_ascii=False) if self._as_json else report_line(value))

    def _write(self, line: str) -> None:
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except OSError:
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, sys.stdout.fileno())
