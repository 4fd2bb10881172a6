"""First boot: what makes one board out of an image that many were flashed with. Once, and again where it was cut off.

Each step finds out for itself what is done already; the state file says what was under way when the power went.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edgellm.durable_file import make_private_folder, replace_link, sync_folder, write_durably
from edgellm.errors import ConfigError, FirstBootError
from edgellm.host.board_name import take_name
from edgellm.host.brief_containers import run_on_the_host, run_secretly
from edgellm.host.commands import Said, attempt
from edgellm.host.container_releases import CURRENT
from edgellm.host.first_boot_state import BootStep, FirstBootState
from edgellm.host.installed_files import IMAGE_MANIFEST
from edgellm.host.paths import HostPaths
from edgellm.host.redaction import DEVICE_KEY_FILE
from edgellm.host.release import Kind
from edgellm.host.root_growth import grow_root
from edgellm.host.source import open_source
from edgellm.host.venv_releases import VenvReleases

IMAGE_FOLDER = "usr/share/edgellm/image"  # what image/build put there
CREDENTIALS = "etc/edgellm/credentials"
AUTHORITY_FOLDER = "etc/edgellm/tls"
DEVICE_CLIENT = "device"
ADDRESS_WAIT_SECONDS = 20.0
ADDRESS_POLL_SECONDS = 0.5
KEY_MODE, GROUP_READ_MODE = 0o600, 0o640
USER = "edgellm"
UNITS = ("edgellm-prewarm.service", "edgellm.service")
_KEY = re.compile(r"[!-~]{16,256}")

Note = Callable[[BootStep, str, float], None]


class FirstBoot:
    """``note`` hears of each step that was taken. Raises FirstBootError; the next boot goes on from there. Raises
    ConfigError where no image was put onto the machine, before anything of it changes.
    """

    def __init__(self, paths: HostPaths, note: Note = lambda step, text, seconds: None) -> None:
        self._paths = paths
        self._note = note
        self._command = str(paths.at("usr/local/bin/edgellm"))

    def run(self) -> None:
        state = FirstBootState(self._paths.state)
        if state.is_over:
            return
        if not self._paths.at(IMAGE_MANIFEST).is_file():
            raise ConfigError(
                f"{self._paths.at(IMAGE_MANIFEST)} is not there: this machine was not made of an image of edgellm, and "
                "keeps its name, its keys and its disk — to set edgellm up on it: edgellm install"
            )
        steps: dict[BootStep, Callable[[bool], str]] = {
            BootStep.IDENTITY: self._identity,
            BootStep.FILE_SYSTEM: lambda again: grow_root(self._paths),
            BootStep.HOSTNAME: self._hostname,
            BootStep.ACCOUNTS: self._accounts,
            BootStep.RELEASE: self._release,
            BootStep.AUTHORITY: self._authority,
            BootStep.DEVICE_KEY: self._device_key,
            BootStep.BUNDLES: self._bundles,
            BootStep.SERVICE: self._service,
        }
        for step in BootStep:
            if state.is_done(step):
                continue
            again = state.was_begun(step)
            state.begin(step)
            began = time.monotonic()
            try:
                text = steps[step](again)
            except OSError as error:
                raise FirstBootError(f"{step.value}: {error.filename}: {error.strerror}") from None
            os.sync()
            seconds = time.monotonic() - began
            state.finish(step, text, seconds)
            self._note(step, text, seconds)
        state.finish_all()

    def _identity(self, again: bool) -> str:
        elsewhere = [] if self._paths.root == Path("/") else [str(self._paths.root)]
        self._demand(["systemd-machine-id-setup", *(f"--root={root}" for root in elsewhere)])
        keys = self._paths.at("etc/ssh")
        if shutil.which("ssh-keygen") is None or not keys.is_dir():
            return "machine id; no ssh server here"
        for shared in keys.glob("ssh_host_*"):  # of the image, or half of one from before a power cut
            shared.unlink()
        self._demand(["ssh-keygen", "-A", *(word for root in elsewhere for word in ("-f", root))])
        return "machine id and ssh host keys"

    def _hostname(self, again: bool) -> str:
        taken = take_name(self._paths)
        if self._paths.root == Path("/"):
            # Where it runs already, it announces the name that the image had.
            attempt(["systemctl", "--no-block", "try-restart", "avahi-daemon.service"])
        return taken

    def _accounts(self, again: bool) -> str:
        self._demand(["systemd-sysusers"])
        self._demand(["systemd-tmpfiles", "--create", "edgellm.conf"])
        return f"the user {USER} and its folders"

    def _release(self, again: bool) -> str:
        source = self._paths.at(IMAGE_FOLDER)
        archives = sorted((source / "container").glob("*.tar*"))
        if archives:
            return self._load_image(archives[0])
        wheels, installed = source / "wheels", source / ".wheels-installed"
        shutil.rmtree(installed, ignore_errors=True)  # all that is left of them after a power cut
        if not wheels.is_dir():
            if self._paths.current_environment.exists() or _has_image():
                return "there already"
            raise FirstBootError(
                f"{source} has neither container nor wheels — assemble the image anew with image/build"
            )
        releases = VenvReleases(self._paths)
        release = releases.stage(open_source(str(wheels), Kind.VENV, HostPathsWithoutKeys(self._paths.root)))
        replace_link(self._paths.current_environment, str(self._paths.environments / release.id))
        wheels.rename(installed)  # whole or not at all
        sync_folder(source)
        shutil.rmtree(installed)  # they are in the environment, and the board is small
        return release.id

    def _load_image(self, archive: Path) -> str:
        said = self._demand(["podman", "load", "--quiet", "--input", str(archive)])
        loaded: list[str] = re.findall(r"Loaded image(?:\(s\)|s)?:\s*(\S+)", said.output) or [said.output.strip()]
        self._demand(["podman", "tag", loaded[-1], CURRENT])
        archive.unlink()
        return loaded[-1]

    def _authority(self, again: bool) -> str:
        """Its certificate names the addresses that the board has by now; clients come by name where it has none."""
        deadline = time.monotonic() + ADDRESS_WAIT_SECONDS
        while not _has_address(self._paths) and time.monotonic() < deadline:
            time.sleep(ADDRESS_POLL_SECONDS)
        folder = self._paths.at(AUTHORITY_FOLDER)
        if again and not (folder / "server.crt").exists():
            shutil.rmtree(folder, ignore_errors=True)  # nobody has seen an authority that was cut off
        self._demand([*self._program(), "tls", "init", "--folder", str(folder)])
        for name, its in (("tls-certificate", "server.crt"), ("tls-key", "server.key"), ("tls-authority", "ca.crt")):
            self._put_credential(name, (folder / its).read_bytes())
        return f"{folder}/ca.crt"

    def _device_key(self, again: bool) -> str:
        kept = self._paths.state / DEVICE_KEY_FILE
        if again:
            attempt([self._command, "keys", "revoke", DEVICE_CLIENT])  # one that was made and not written down
        said = self._demand([self._command, "keys", "add", DEVICE_CLIENT], is_secret=True)
        key = said.output.strip()
        if not _KEY.fullmatch(key):
            raise FirstBootError("edgellm keys add did not print a key")
        make_private_folder(self._paths.state)
        write_durably(kept, f"{key}\n".encode(), KEY_MODE)
        return f"{kept}, for root"

    def _bundles(self, again: bool) -> str:
        """Moved to where prewarming takes them from; it checks each of them."""
        source, data = self._paths.at(IMAGE_FOLDER), self._paths.service_data
        moved = 0
        for kind, target in (("engines", data / "import"), ("models", data / "models")):
            for path in sorted((source / kind).glob("*")):
                target.mkdir(parents=True, exist_ok=True)
                _give_to_service(target)
                _move(path, target / path.name)
                moved += 1
        return f"{moved} engines and models"

    def _service(self, again: bool) -> str:
        """Units as the release that is here has them, fitted to the devices and groups that the board has."""
        program = self._paths.current_environment / "bin/edgellm"
        if program.exists():
            self._demand([str(program), "install", "--mode", "venv"])
        else:
            self._demand([*run_on_the_host(), CURRENT, "install", "--mode", "container", "--root", "/host"])
            self._demand(["systemctl", "daemon-reload"])
        self._demand(["systemctl", "--no-block", "start", *UNITS])
        return ", ".join(UNITS)

    def _put_credential(self, name: str, content: bytes) -> None:
        path = self._paths.at(CREDENTIALS) / name
        write_durably(path, content, KEY_MODE)
        shutil.chown(path, group=USER)
        path.chmod(GROUP_READ_MODE)

    def _program(self) -> list[str]:
        """As root: what the host keeps for itself is not the service's to write."""
        program = self._paths.current_environment / "bin/edgellm"
        if program.exists():
            return [str(program)]
        folder = f"{self._paths.at('etc/edgellm')}:/etc/edgellm"
        options = ["--network=host", "--uts=host", "--user=0", "--cap-drop=all", "--cap-add=dac_override"]
        return [*run_secretly(*options, f"--volume={folder}"), CURRENT]

    def _demand(self, argv: Sequence[str], *, is_secret: bool = False) -> Said:
        said = attempt(argv)
        if said.code != 0:
            words = "see above" if is_secret and not said.errors else said.last_words
            raise FirstBootError(f"{' '.join(argv[:3])} ended with {said.code}: {words}")
        return said


class HostPathsWithoutKeys(HostPaths):
    """What came with the image is as trusted as the image; keys for upgrades say nothing about it."""

    @property
    def trusted_keys(self) -> Path:
        return Path("/nonexistent")


def _has_image() -> bool:
    return shutil.which("podman") is not None and attempt(["podman", "image", "exists", CURRENT]).code == 0


def _has_address(paths: HostPaths) -> bool:
    """Another address than loopback's, by the kernel's table."""
    try:
        table = paths.at("proc/net/fib_trie").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    found = re.findall(r"\|--\s+(\d+\.\d+\.\d+\.\d+)\s+/32 host LOCAL", re.sub(r"\n\s+/32", " /32", table))
    return any(not address.startswith("127.") for address in found)


def _move(source: Path, target: Path) -> None:
    """Whole or not at all, for the service. What is there already is from before a power cut, and whole."""
    if not target.exists():
        if source.stat().st_dev == target.parent.stat().st_dev:
            source.rename(target)
        else:
            half = target.with_name(f".{target.name}.half")
            shutil.rmtree(half, ignore_errors=True)
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, half)
            os.sync()
            half.rename(target)
        sync_folder(target.parent)
    for path in (target, *target.rglob("*")) if target.is_dir() else (target,):
        _give_to_service(path)
    if source.is_dir():
        shutil.rmtree(source)
    else:
        source.unlink(missing_ok=True)


def _give_to_service(path: Path) -> None:
    shutil.chown(path, USER, USER)


def facts(paths: HostPaths) -> str:
    """The state as JSON, for ``--status``."""
    return json.dumps(FirstBootState(paths.state).as_json(), indent=1, ensure_ascii=False)
