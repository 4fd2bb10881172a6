"""The support archive: what is known of a board and its service, without prompts, keys or other people's data."""

from __future__ import annotations

import io
import json
import platform
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from edgellm.errors import EdgeLLMError, UpgradeError
from edgellm.host.commands import attempt
from edgellm.host.host_state import HostState
from edgellm.host.paths import HostPaths
from edgellm.host.redaction import Redaction
from edgellm.host.releases import Releases
from edgellm.host.service_unit import PREWARM, SERVICE
from edgellm.host.smoke import LocalAccess

JOURNAL_LINES_MAX = 2000
FILE_BYTES_MAX = 4 << 20
COMMAND_DEADLINE_SECONDS = 60.0
ARCHIVE_MODE = 0o600
UNITS = (
    *(SERVICE, PREWARM, "edgellm-device-facts.service", "edgellm-upgrade-recover.service", "edgellm-ready.target"),
    *("edgellm-announce.service", "edgellm-first-boot.service"),
)
# Not all of them: the environment of a unit may hold a token.
UNIT_PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "SubState", "Result", "NRestarts", "ExecMainStatus", "StatusText"),
    *("ActiveEnterTimestamp", "InactiveEnterTimestamp", "MemoryCurrent", "MemoryPeak", "TasksCurrent", "CPUUsageNSec"),
    *("FragmentPath", "DropInPaths", "UnitFileState"),
)
COMMANDS = {
    "system/kernel.txt": ["uname", "-a"],
    "system/systemd.txt": ["systemctl", "--version"],
    "system/podman.txt": ["podman", "version"],
    "system/disks.txt": ["df", "-h", "-x", "tmpfs"],
    "system/memory.txt": ["free", "-m"],
    "system/processor.txt": ["lscpu"],
    "system/listeners.txt": ["ss", "-ltn"],
    "system/failed-units.txt": ["systemctl", "--failed", "--no-legend", "--plain"],
    "device/power-mode.txt": ["nvpmodel", "-q"],
}
FILES = {
    "system/os-release.txt": "etc/os-release",
    "system/meminfo.txt": "proc/meminfo",
    "device/device.json": "run/edgellm/device.json",
    "device/nv_tegra_release.txt": "etc/nv_tegra_release",
    "releases/installed.json": "usr/local/lib/edgellm/installed.json",
}
README = "README.txt"
_INTRODUCTION = """\
What is known of this board and its edgellm service, made by `edgellm report`.

Not in it: prompts and answers (edgellm never logs them), API keys and their hashes, TLS keys, tokens, comments of the
configuration, models and engines themselves, and records of requests. What has the shape of a secret was replaced by
[removed]. Names of clients, addresses in the log and names of models are in it: read it before you send it.

"""


class SupportReport:
    """``entries`` never fails for what a board lacks: the reason takes the place of what would be there."""

    def __init__(self, paths: HostPaths, releases: Releases | None, *, journal_lines: int = JOURNAL_LINES_MAX) -> None:
        self._paths = paths
        self._releases = releases
        self._journal_lines = journal_lines
        self._redaction = Redaction.of_host(paths)

    def entries(self) -> Iterator[tuple[str, str]]:
        """Name and text of each file."""
        for name, argv in COMMANDS.items():
            if shutil.which(argv[0]) is not None:
                yield name, self._said(argv)
        for name, file in FILES.items():
            if self._paths.at(file).exists():
                yield name, self._file(self._paths.at(file))
        yield "device/temperatures.json", _as_json(self._temperatures())
        yield "service/units.json", self._attempted(self._units)
        for unit in UNITS:
            lines = f"--lines={self._journal_lines}"
            argv = ["journalctl", "--no-pager", "--output=short-iso", lines, f"--unit={unit}"]
            yield f"journal/{unit}.txt", self._said(argv)
        configuration = self._paths.configuration
        if configuration.exists():
            yield "service/edgellm.toml", self._redaction.configuration(self._raw(configuration))
        for drop_in in sorted(self._paths.at("etc/systemd/system").glob("edgellm*.d/*.conf")):
            name = f"service/drop-ins/{drop_in.parent.name}/{drop_in.name}"
            yield name, self._redaction.unit(self._raw(drop_in))
        for name, path in (("health.json", "/health"), ("models.json", "/v1/models"), ("metrics.txt", "/metrics")):
            yield f"service/{name}", self._attempted(partial(self._asked, path))
        yield "releases/releases.json", self._attempted(self._kept_releases)
        for name, arguments in (
            ("engines/engines.json", ("engine", "list", "--json")),
            ("service/doctor.json", ("doctor", "--json")),
            ("releases/version.txt", ("version", "--all")),
        ):
            yield name, self._attempted(partial(self._of_release, *arguments))
        for manifest in sorted(self._paths.service_data.glob("engines/*/manifest.json")):
            yield f"engines/{manifest.parent.name}/manifest.json", self._file(manifest)

    def _attempted(self, work: Callable[[], str]) -> str:
        try:
            return self._redaction.text(work())
        except EdgeLLMError as error:
            return self._redaction.text(f"not known: {error}\n")

    def _said(self, argv: list[str]) -> str:
        def work() -> str:
            said = attempt(argv, deadline_seconds=COMMAND_DEADLINE_SECONDS)
            return said.output + said.errors

        return self._attempted(work)

    def _file(self, path: Path) -> str:
        return self._redaction.text(self._raw(path))

    def _raw(self, path: Path) -> str:
        try:
            with path.open("rb") as stream:
                return stream.read(FILE_BYTES_MAX).decode("utf-8", "replace")
        except OSError as error:
            return f"not known: {error.strerror}\n"

    def _units(self) -> str:
        properties = [f"--property={name}" for name in UNIT_PROPERTIES]
        shown = attempt(["systemctl", "show", *properties, *UNITS]).output
        blocks = [block for block in shown.split("\n\n") if block.strip()]
        return _as_json([dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in blocks])

    def _asked(self, path: str) -> str:
        answer = LocalAccess.ask(self._paths).request("GET", path)
        return answer.body.decode("utf-8", "replace")

    def _kept_releases(self) -> str:
        state = HostState(self._paths)
        floor, journey = state.floor(), state.journey()
        return _as_json(
            {
                "releases": [one.as_json() for one in state.releases()],
                "under_way": None if journey is None else journey.as_json(),
                "last": state.last_report(),
                "version_floor": None if floor is None else str(floor),
            }
        )

    def _of_release(self, *arguments: str) -> str:
        if self._releases is None:
            raise UpgradeError("edgellm is not installed as a service here")
        said = self._releases.command(self._releases.current(), *arguments)
        return said.output + said.errors

    def _temperatures(self) -> dict[str, Any]:
        found = {}
        for zone in sorted(self._paths.at("sys/class/thermal").glob("thermal_zone*")):
            found[self._raw(zone / "type").strip() or zone.name] = self._raw(zone / "temp").strip()
        return found


def write_report(stream: io.BufferedIOBase, report: SupportReport, folder: str) -> list[str]:
    """A gzipped tar; the names that are in it."""
    names = []
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, text in report.entries():
            _add(archive, f"{folder}/{name}", text)
            names.append(name)
        listing = "".join(f"  {name}\n" for name in sorted(names))
        about = f"{platform.node()}, {time.strftime('%Y-%m-%d %H:%M:%S %z')}\n\n"
        _add(archive, f"{folder}/{README}", f"{_INTRODUCTION}{about}{listing}")
    return [README, *names]


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode("utf-8", "replace")
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), ARCHIVE_MODE, int(time.time())
    archive.addfile(entry, io.BytesIO(content))


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
