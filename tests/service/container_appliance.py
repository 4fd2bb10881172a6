"""A device with edgellm in a container, installed from the image as an administrator would, and run by a Quadlet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.lab.container_image import CURRENT
from tests.lab.device import Outcome
from tests.lab.fixtures import MakeDevice
from tests.service.appliance import MODELS, PREWARM, READY_SECONDS, Appliance

from edgellm.service.install import Target
from edgellm.service.install.cdi import podman_version

ARCHIVE = "/srv/image"
WRAPPER = "/usr/local/bin/edgellm"
LOAD_SECONDS = 300.0
CONTAINER = "edgellm"
# Control groups here may be without the controller, and this machine without the right to raise limits.
LAB_QUADLET = "[Container]\nPidsLimit=0\nUlimit=\nUlimit=nofile=4096:4096\n"
QUADLETS = "usr/share/containers/systemd"
PODMAN_WITH_DROP_INS = (5, 0)  # for Quadlet files


class ContainerAppliance(Appliance):
    """The server's processes are in the device's list; the unit's main process is conmon."""

    @classmethod
    def make_with_image(
        cls,
        make_device: MakeDevice,
        name: str,
        rootfs: Path,
        archive: Path,
        model: Path | None,
        more: Mapping[str, Path] | None = None,
    ) -> ContainerAppliance:
        """Not booted yet. ``model`` is the folder of the default model, None for a device without any.

        ``more`` are other folders of this machine that the device sees.
        """
        read_only = {ARCHIVE: archive.parent, **(more or {})}
        if model is not None:
            read_only[f"{MODELS}/{model.name}"] = model
        device = make_device(name, rootfs, read_only=read_only, runs_containers=True)
        for unit in ("edgellm", "edgellm-prewarm"):
            device.write(f"/etc/containers/systemd/{unit}.container.d/lab.conf", LAB_QUADLET)
        made = cls(device)
        made._archive = f"{ARCHIVE}/{archive.name}"
        return made

    _archive: str

    def load(self) -> None:
        self.device.run("podman", "load", "--quiet", f"--input={self._archive}", deadline_seconds=LOAD_SECONDS)

    def command(self, *arguments: str, check: bool = True, deadline_seconds: float = 300.0) -> Outcome:
        """``edgellm`` as the administrator calls it, once it is installed."""
        return self.device.run(WRAPPER, *arguments, check=check, deadline_seconds=deadline_seconds)

    def install(self, *options: str) -> Outcome:
        """From the image alone: the host has nothing of edgellm yet."""
        installed = self.device.run(
            *("podman", "run", "--rm", "--no-healthcheck", "--privileged", "--pid=host", "--network=none", "--user=0"),
            *("--volume=/:/host", CURRENT, "install", "--mode", "container", "--root=/host", *options),
            deadline_seconds=LOAD_SECONDS,
        )
        if not self._reads_drop_ins:
            self._put_copies_before_the_quadlets()
        return installed

    @property
    def _reads_drop_ins(self) -> bool:
        return (podman_version(Target(self.device.root)) or PODMAN_WITH_DROP_INS) >= PODMAN_WITH_DROP_INS

    def spoil_unit(self) -> str:
        """A key that podman does not know, so that it makes no unit any more. The file that has it."""
        file = "/etc/containers/systemd/edgellm.container"
        before = "" if self._reads_drop_ins else self.device.read(file)
        file = f"{file}.d/wrong.conf" if self._reads_drop_ins else file
        self.device.write(file, f"{before}[Container]\nNoSuchKey=1\n")
        self.device.run("systemctl", "daemon-reload")
        return file

    def _put_copies_before_the_quadlets(self) -> None:
        """The laboratory's limits for a podman that reads no drop-ins of Quadlet files."""
        for file in (self.device.root / QUADLETS).glob("edgellm*.container"):
            lines = [line for line in file.read_text().splitlines() if not line.startswith(("PidsLimit=", "Ulimit="))]
            at = lines.index("[Container]")
            lines[at : at + 1] = LAB_QUADLET.splitlines()
            self.device.write(f"/etc/containers/systemd/{file.name}", "\n".join([*lines, ""]))
        self.device.run("systemctl", "daemon-reload")

    def uninstall(self) -> None:
        for copy in (self.device.root / "etc/containers/systemd").glob("edgellm*.container"):
            copy.unlink()
        self.command("uninstall")

    def serve(self) -> ContainerAppliance:
        self.boot()
        self.load()
        self.install()
        self.device.run("systemctl", "start", PREWARM, deadline_seconds=READY_SECONDS)
        self.start()
        return self

    def serving_version(self) -> str:
        """Of the container that answers."""
        return self.device.run("podman", "exec", CONTAINER, "edgellm", "--version").output.split()[-1]

    def server_pid(self) -> int:
        """As the device numbers it."""
        shown = self.device.run("podman", "container", "inspect", "--format={{.State.Pid}}", CONTAINER, check=False)
        return int(shown.output) if shown.output.strip().isdecimal() else 0

    def processes(self) -> Iterator[int]:
        yield self.server_pid()
        yield from self.worker_pids()
