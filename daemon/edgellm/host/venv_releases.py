"""VenvReleases: virtual environments in /opt/edgellm-releases, and /opt/edgellm, a link to the one that serves.

An environment is made where it stays, since its programs have its path in them; a marker says that it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgellm.durable_file import replace_link, sync_folder, write_durably
from edgellm.errors import ReleaseSourceError, UpgradeError
from edgellm.host.commands import Said, attempt, run
from edgellm.host.operator_files import drop_in_environment, setting_variables
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind, Release
from edgellm.host.service_unit import PREWARM, ServiceUnit, reload_units
from edgellm.host.snapshot import installed_files
from edgellm.host.source import Source, digest_of_wheels, installed_bytes, wheel_version

MARKER = ".edgellm-release.json"
PREWARM_DROP_IN = "run/systemd/system/edgellm-prewarm.service.d/90-upgrade.conf"
GPU_DROP_IN = "usr/local/lib/systemd/system/edgellm.service.d/20-gpu.conf"
PREWARM_DEADLINE_SECONDS = 4 * 3600.0  # a large model is fetched and built in it
INSTALL_DEADLINE_SECONDS = 1800.0
USER = "edgellm"
# Compiled modules, and what pip needs of its own.
COMPILED_FACTOR, ENVIRONMENT_BYTES = 1.4, 60_000_000


class VenvReleases:
    def __init__(self, paths: HostPaths) -> None:
        self._paths = paths
        self._unit = ServiceUnit()
        self._adopted_release: Release | None = None

    def folder_of(self, release: Release) -> Path:
        """Where it is, or will be. A first installation is in /opt/edgellm itself until it is left."""
        folder = self._paths.environments / release.id
        if not folder.exists() and self._is_adopted_later() and self._adopted().id == release.id:
            return self._paths.current_environment
        return folder

    def current(self) -> Release:
        link = self._paths.current_environment
        if self._is_adopted_later():
            return self._adopted()
        if not link.is_symlink():
            raise UpgradeError(f"{link} is not there — install edgellm first (edgellm install --help)")
        return _read_marker(link.resolve())

    def identify(self, source: Source) -> Release | None:
        return Release(Kind.VENV, wheel_version(source.wheel), digest_of_wheels(source.wheels))

    def needed_bytes(self, source: Source) -> tuple[int, Path]:
        place = self._paths.environments
        needed_bytes = int(installed_bytes(source.wheels) * COMPILED_FACTOR) + ENVIRONMENT_BYTES
        return needed_bytes, place if place.exists() else place.parent

    def stage(self, source: Source) -> Release:
        release = self.identify(source)
        assert release is not None  # noqa: S101  # wheels always tell
        folder = self._paths.environments / release.id
        if _is_whole(folder):
            return release
        with _errors_named(folder):
            folder.parent.mkdir(mode=0o755, exist_ok=True)
            folder.parent.chmod(0o755)
            shutil.rmtree(folder, ignore_errors=True)
        try:
            self._make_environment(folder, source)
            _require_version(folder, release.version)
            with _errors_named(folder):
                os.sync()
                write_durably(folder / MARKER, json.dumps(release.as_json()).encode(), 0o644)
                sync_folder(folder.parent)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return release

    def _make_environment(self, folder: Path, source: Source) -> None:
        mask = os.umask(0o022)  # the service's user runs what root installs
        try:
            made = attempt([self._python(), "-m", "venv", folder])
            if made.code != 0:
                raise UpgradeError(f"no environment could be made: {made.last_words} — is python3-venv installed?")
            folders = sorted({str(wheel.parent) for wheel in source.wheels})
            pip: list[str | Path] = [
                folder / "bin/python",
                "-m",
                "pip",
                "--isolated",
                "--disable-pip-version-check",
                "install",
            ]
            where = ["--quiet", "--no-index", *(f"--find-links={one}" for one in folders)]
            installed = attempt([*pip, *where, source.wheel], deadline_seconds=INSTALL_DEADLINE_SECONDS)
        finally:
            os.umask(mask)
        if installed.code != 0:
            raise ReleaseSourceError(
                f"{source.wheel.name} could not be installed: {installed.last_words} — give a folder with the wheels "
                "of all that it needs (pip wheel edgellm --wheel-dir FOLDER)"
            )

    def _python(self) -> Path:
        """The Python of the environment that serves, by its own path: links of an environment end with it."""
        present = self._paths.current_environment / "bin/python3"
        return Path(os.path.realpath(present)) if present.exists() else Path(sys.executable)

    def is_staged(self, release: Release) -> bool:
        return _is_whole(self._paths.environments / release.id)

    def unstage_unfinished(self) -> None:
        for folder in self._folders():
            if not _is_whole(folder):
                shutil.rmtree(folder, ignore_errors=True)
        self._paths.at(PREWARM_DROP_IN).unlink(missing_ok=True)

    def command(self, release: Release, *arguments: str) -> Said:
        return self._as_the_service(release, arguments, {})

    def check_configuration(self, release: Release, file: Path) -> Said:
        arguments = ("config", "check", "--config", str(file))
        return self._as_the_service(release, arguments, setting_variables(drop_in_environment(self._paths)))

    def _as_the_service(self, release: Release, arguments: Sequence[str], variables: Mapping[str, str]) -> Said:
        """By its user: what it writes is the service's."""
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
        environment = {**os.environ, **variables, "HOME": str(self._paths.service_data)}
        return attempt([*user, *_program(self.folder_of(release)), *arguments], environment=environment)

    def prewarm(self, release: Release, configuration: Path | None = None) -> None:
        self._unit.refuse_masked(PREWARM)
        drop_in = self._paths.at(PREWARM_DROP_IN)
        options = [] if configuration is None else ["--config", configuration]
        program = " ".join(map(str, [*_program(self.folder_of(release)), "prewarm", *options]))
        with _errors_named(drop_in):
            drop_in.parent.mkdir(parents=True, exist_ok=True)
            drop_in.write_text(
                "# An upgrade prepares what its release needs; gone when it has.\n"
                f"[Service]\nExecStart=\nExecStart={program}\nExecStartPost=\nRestart=no\n"
            )
        try:
            reload_units()
            said = attempt(["systemctl", "restart", PREWARM], deadline_seconds=PREWARM_DEADLINE_SECONDS)
            if said.code != 0:
                # What systemd itself refused has left nothing in the journal but the words of an earlier run.
                last = [] if said.errors.startswith("Failed to ") else self._unit.journal(PREWARM, lines=1)
                raise UpgradeError(f"prewarming failed: {last[-1] if last else said.last_words}")
        finally:
            drop_in.unlink(missing_ok=True)
            attempt(["systemctl", "reset-failed", PREWARM])
            reload_units()

    def switch(self, release: Release) -> None:
        link, target = self._paths.current_environment, self._paths.environments / release.id
        with _errors_named(link):
            if self._is_adopted_later():
                adopted = self._adopted()
                if adopted.id == release.id:
                    return
                # A power cut between the two leaves no /opt/edgellm: switching back mends it before the service starts.
                write_durably(link / MARKER, json.dumps(adopted.as_json()).encode(), 0o644)
                link.rename(self._paths.environments / adopted.id)
                sync_folder(link.parent)
            replace_link(link, str(target))

    def install(self, release: Release) -> None:
        installed = installed_files(self._paths)
        gpu = "auto" if not installed else "yes" if GPU_DROP_IN in installed else "no"
        run([*_program(self.folder_of(release)), "install", "--mode", "venv", "--gpu", gpu])

    def drop(self, release: Release) -> None:
        folder = self._paths.environments / release.id
        with _errors_named(folder):
            (folder / MARKER).unlink(missing_ok=True)  # from here on it is unfinished
            shutil.rmtree(folder, ignore_errors=True)

    def present(self) -> Sequence[str]:
        here = [folder.name for folder in self._folders() if _is_whole(folder)]
        return [*here, self._adopted().id] if self._is_adopted_later() else here

    def _folders(self) -> Iterator[Path]:
        if self._paths.environments.is_dir():
            yield from (folder for folder in sorted(self._paths.environments.iterdir()) if folder.is_dir())

    def _is_adopted_later(self) -> bool:
        """A first installation is a folder, and becomes a release when it is left."""
        link = self._paths.current_environment
        return link.is_dir() and not link.is_symlink()

    def _adopted(self) -> Release:
        folder = self._paths.current_environment
        if (folder / MARKER).is_file():
            return _read_marker(folder)
        if self._adopted_release is not None:
            return self._adopted_release
        found = attempt([*_program(folder), "--version"])
        words = found.output.split()
        if found.code != 0 or not words:
            raise UpgradeError(f"{folder}/bin/edgellm does not run: {found.last_words} — install edgellm first")
        digest = hashlib.sha256(words[-1].encode())
        for record in sorted(folder.glob("lib/python3*/site-packages/*.dist-info/RECORD")):
            digest.update(record.read_bytes())
        self._adopted_release = Release(Kind.VENV, words[-1], digest.hexdigest())
        return self._adopted_release


def _program(folder: Path) -> list[str | Path]:
    """`edgellm` of that very environment: the program of a first installation names the Python of /opt/edgellm."""
    return [folder / "bin/python3", "-P", "-m", "edgellm"]


def _require_version(folder: Path, version: str) -> None:
    said = attempt([*_program(folder), "--version"])
    if said.code != 0 or said.output.split()[-1:] != [version]:
        raise ReleaseSourceError(f"the wheel does not run as edgellm {version} here: {said.last_words}")


def _is_whole(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def _read_marker(folder: Path) -> Release:
    try:
        return Release.of_json(json.loads((folder / MARKER).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        raise UpgradeError(
            f"{folder} is no release of edgellm — edgellm upgrade --list shows those there are"
        ) from None


@contextmanager
def _errors_named(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UpgradeError(f"{error.filename or place}: {error.strerror}") from None
