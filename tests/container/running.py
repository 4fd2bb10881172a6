"""A server in a container of its own network, as an administrator would start it without units."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.lab.forwarding import connect_inside
from tests.lab.podman import Podman

from edgellm.service.install.installation import USER_NUMBER

PORT = 8000
READY_SECONDS = 120.0
MODELS = "/var/lib/edgellm/models"


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """``leader`` is the server's process, as this machine numbers it; ``state`` the server's folder."""

    podman: Podman
    name: str
    leader: int
    state: Path

    def status(self) -> dict[str, str]:
        text = Path(f"/proc/{self.leader}/status").read_text()
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def log(self) -> str:
        said = self.podman.run("logs", self.name, check=False)
        return said.stdout + said.stderr

    def is_ready(self) -> bool:
        with suppress(OSError), connect_inside(self, PORT) as connection:
            connection.settimeout(READY_SECONDS)
            connection.sendall(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        return False


@contextmanager
def running(
    podman: Podman, image: str, name: str, state: Path, model: Path | None, *options: str
) -> Iterator[RunningContainer]:
    """``state`` becomes the server's folder. Returns once it is ready."""
    for folder in (state, state / "run"):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o750)
        os.chown(folder, USER_NUMBER, USER_NUMBER)
    mounts = [f"--volume={state}:/var/lib/edgellm", f"--volume={state / 'run'}:/run/edgellm"]
    mounts += [f"--volume={model}:{MODELS}/{model.name}:ro"] if model is not None else []
    podman.run(
        *("run", "--detach", f"--name={name}", "--network=none", "--read-only", "--tmpfs=/tmp", "--cap-drop=all"),
        *("--security-opt=no-new-privileges", "--pids-limit=0", *mounts, image, "serve", *options),
    )
    try:
        found = RunningContainer(podman, name, int(podman.inspect("container", name)["State"]["Pid"]), state)
        deadline = time.monotonic() + READY_SECONDS
        while not found.is_ready():
            assert time.monotonic() < deadline, found.log()
            assert podman.inspect("container", name)["State"]["Running"], found.log()
            time.sleep(0.1)
        yield found
    finally:
        podman.run("rm", "--force", "--time=0", name, check=False)
