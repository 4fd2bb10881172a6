"""ContainerReleases: images in root's podman, and localhost/edgellm:current, the tag that the units start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from edgellm.errors import ReleaseSourceError, UpgradeError
from edgellm.host.archives import VERSION_LABEL, ImageArchive
from edgellm.host.brief_containers import remove_left, run_briefly, run_on_the_host
from edgellm.host.commands import Said, attempt, run
from edgellm.host.operator_files import drop_in_environment, setting_variables
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind, Release
from edgellm.host.service_unit import PREWARM, ServiceUnit
from edgellm.host.source import Source

REPOSITORY = "localhost/edgellm"
CURRENT = f"{REPOSITORY}:current"
PREWARM_FILE = "edgellm-prewarm.container"
PREWARM_UNIT = f"usr/share/containers/systemd/{PREWARM_FILE}"
# Where podman looks for changes to it; of two of one name the later folder's counts.
DROP_IN_FOLDERS = ("usr/share/containers/systemd", "etc/containers/systemd", "run/containers/systemd")
PREWARM_NAME = "edgellm-prewarm-upgrade"
PREWARM_DEADLINE_SECONDS = 4 * 3600.0  # a large model is fetched and built in it
LOAD_DEADLINE_SECONDS = 3600.0
# Room for the layers and for the copy that podman unpacks, by whether the archive is compressed.
PLAIN_FACTOR, COMPRESSED_FACTOR = 2.2, 5.0
COMPRESSED_BEGINNINGS = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")
_OPTIONS = {  # keys of a Quadlet file: options of podman run
    "AddDevice": "--device",
    "DropCapability": "--cap-drop",
    "Environment": "--env",
    "Network": "--network",
    "PidsLimit": "--pids-limit",
    "Tmpfs": "--tmpfs",
    "Ulimit": "--ulimit",
    "Volume": "--volume",
}
_ID = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


def _environment(variables: Mapping[str, str]) -> Mapping[str, str]:
    """Of podman, which hands settings on: those of the unit alone, and not what the upgrade was called with."""
    settings = setting_variables(os.environ)
    return {name: value for name, value in os.environ.items() if name not in settings} | dict(variables)


class ContainerReleases:
    def __init__(self, paths: HostPaths) -> None:
        self._paths = paths

    def current(self) -> Release:
        found = self._inspect(CURRENT)
        if found is None:
            raise UpgradeError(f"the image {CURRENT} is not there — install edgellm first (edgellm install --help)")
        return found

    def identify(self, source: Source) -> Release | None:
        if source.image is None:
            return self._inspect(source.pinned_name or "")
        try:
            found = ImageArchive.read(source.image)
        except ReleaseSourceError:
            return None  # podman may know more kinds of archive
        return Release(Kind.CONTAINER, found.version, found.digest)

    def needed_bytes(self, source: Source) -> tuple[int, Path]:
        place = Path(run(["podman", "info", "--format", "{{.Store.GraphRoot}}"]).output.strip())
        if source.image is None:
            return 0, place
        with source.image.open("rb") as stream:
            beginning = stream.read(8)
        factor = COMPRESSED_FACTOR if beginning.startswith(COMPRESSED_BEGINNINGS) else PLAIN_FACTOR
        return int(source.size_bytes * factor), place

    def stage(self, source: Source) -> Release:
        before = self._inspect(CURRENT)
        try:
            name = self._pull(source.pinned_name) if source.pinned_name else self._load(source)
            release = self._inspect(name)
        finally:
            # An archive may bring a tag of its own, and this one is only ours to move.
            if before is not None:
                run(["podman", "tag", before.digest, CURRENT])
        if release is None:
            raise ReleaseSourceError(f"{name} is no image of edgellm: it lacks the label {VERSION_LABEL}")
        said = self.command(release, "--version")
        if said.code != 0 or said.output.split()[-1:] != [release.version]:
            raise ReleaseSourceError(f"{name} does not run as edgellm {release.version} here: {said.last_words}")
        run(["podman", "tag", release.digest, self._tag(release)])
        return release

    def _pull(self, name: str) -> str:
        said = attempt(["podman", "pull", "--quiet", name], deadline_seconds=LOAD_DEADLINE_SECONDS)
        if said.code != 0:
            raise ReleaseSourceError(f"{name} could not be fetched: {said.last_words}")
        return name

    def _load(self, source: Source) -> str:
        assert source.image is not None  # noqa: S101  # the other kind of source is pulled
        said = attempt(["podman", "load", "--quiet", "--input", source.image], deadline_seconds=LOAD_DEADLINE_SECONDS)
        names = re.findall(r"^Loaded image(?:\(s\))?: *(\S+)", said.output, re.MULTILINE)
        if said.code != 0 or len(names) != 1:
            why = said.last_words if said.code != 0 else f"it holds {len(names)} images, not one"
            raise ReleaseSourceError(f"{source.image} could not be loaded: {why}")
        # By its number: the name that the archive brought moves when another archive has the same.
        return f"sha256:{self._number(names[0].split(',')[0])}"

    def _number(self, name: str) -> str:
        found = _ID.fullmatch(run(["podman", "image", "inspect", "--format", "{{.Id}}", name]).output.strip())
        if found is None:
            raise UpgradeError(f"podman says no id for the image {name}")
        return found[1]

    def _inspect(self, name: str) -> Release | None:
        """None where there is no such image, or it is none of edgellm."""
        form = f'{{{{.Id}}}} {{{{index .Labels "{VERSION_LABEL}"}}}}'
        said = attempt(["podman", "image", "inspect", "--format", form, name])
        words = said.output.split()
        number = _ID.fullmatch(words[0]) if words else None
        if said.code != 0 or number is None or len(words) != 2 or words[1] == "<no":
            return None
        return Release(Kind.CONTAINER, words[1], number[1])

    def is_staged(self, release: Release) -> bool:
        return self._inspect(self._tag(release)) is not None

    def unstage_unfinished(self) -> None:
        """Layers that podman did not finish it removes itself; the switch to the earlier release puts the tag back."""
        attempt(["podman", "rm", "--force", "--ignore", PREWARM_NAME])
        remove_left()

    def command(self, release: Release, *arguments: str) -> Said:
        return self._command(release, arguments, {})

    def _command(self, release: Release, arguments: Sequence[str], variables: Mapping[str, str]) -> Said:
        argv = [*run_briefly(*self._run_options("--network=none")), release.digest, *arguments]
        return attempt(argv, environment=_environment(variables))

    def check_configuration(self, release: Release, file: Path) -> Said:
        arguments = ("config", "check", "--config", str(file))
        return self._command(release, arguments, setting_variables(drop_in_environment(self._paths)))

    def prewarm(self, release: Release, configuration: Path | None = None) -> None:
        self.unstage_unfinished()
        argv = [*run_briefly(*self._run_options("--oom-score-adj=800"), name=PREWARM_NAME), release.digest]
        environment = _environment(ServiceUnit().environment(PREWARM))
        options = [] if configuration is None else ["--config", str(configuration)]
        said = attempt([*argv, "prewarm", *options], deadline_seconds=PREWARM_DEADLINE_SECONDS, environment=environment)
        if said.code != 0:
            raise UpgradeError(f"prewarming failed: {said.last_words}")

    def switch(self, release: Release) -> None:
        run(["podman", "tag", release.digest, self._tag(release)])
        run(["podman", "tag", release.digest, CURRENT])

    def install(self, release: Release) -> None:
        lines = self._lines(self._unit)
        gpu = "auto" if not lines else "yes" if any(line.startswith("AddDevice=") for line in lines) else "no"
        run([*run_on_the_host(), release.digest, "install", "--mode", "container", "--gpu", gpu, "--root", "/host"])

    def drop(self, release: Release) -> None:
        """The image itself goes where nothing else has it."""
        remove_left()
        attempt(["podman", "untag", release.digest, self._tag(release)])
        attempt(["podman", "rmi", release.digest])

    def present(self) -> Sequence[str]:
        listed = run(["podman", "images", "--format", "{{.Repository}}:{{.Tag}}"]).output.split()
        return [name.removeprefix(f"{REPOSITORY}:") for name in listed if name.startswith(f"{REPOSITORY}:")]

    def _tag(self, release: Release) -> str:
        return f"{REPOSITORY}:{release.id.replace('+', '_')}"

    def _run_options(self, *options: str) -> list[str]:
        """As the prewarming unit runs it: the same user, mounts, devices and limits."""
        fixed = ["--user=780:780", "--read-only", "--security-opt=no-new-privileges"]
        own = {option.split("=")[0] for option in options}
        return [*fixed, *options, *(one for one in self._unit_options() if one.split("=")[0] not in own)]

    def _unit_options(self) -> Iterator[str]:
        for key, value in self._unit_settings():
            if key in _OPTIONS:
                yield f"{_OPTIONS[key]}={value}"
            elif key == "PodmanArgs":
                yield from (word for word in value.split() if not word.startswith("--stop-timeout"))

    def _unit_settings(self) -> Sequence[tuple[str, str]]:
        """Of the unit and what an administrator changed in it, as podman reads them; none where it is not installed."""
        settings: list[tuple[str, str]] = []
        for file in [self._unit, *self._drop_ins()] if self._unit.exists() else []:
            section = ""
            for line in map(str.strip, self._lines(file)):
                key, sign, value = (part.strip() for part in line.partition("="))
                if line.startswith("["):
                    section = line
                elif section == "[Container]" and sign and not line.startswith(("#", ";")):
                    # An empty value takes back what was there before.
                    settings = [*settings, (key, value)] if value else [one for one in settings if one[0] != key]
        return settings

    @property
    def _unit(self) -> Path:
        return self._paths.at(PREWARM_UNIT)

    def _drop_ins(self) -> Sequence[Path]:
        folders = (self._paths.at(folder) / f"{PREWARM_FILE}.d" for folder in DROP_IN_FOLDERS)
        by_name = {file.name: file for folder in folders for file in folder.glob("*.conf")}
        return [by_name[name] for name in sorted(by_name)]

    def _lines(self, file: Path) -> list[str]:
        try:
            return file.read_text().splitlines()
        except FileNotFoundError:
            return []  # not installed yet
        except OSError as error:
            raise UpgradeError(f"{file}: {error.strerror} — run edgellm install again") from None
