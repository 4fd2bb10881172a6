"""A device with edgellm installed as an administrator would: the wheel in /opt/edgellm, then `edgellm install`.

Only what the wheel depends on is not copied: the packages of this environment are bound into the device, read-only.
"""

from __future__ import annotations

import json
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from tests.lab.device import Device, Outcome
from tests.lab.fixtures import MakeDevice
from tests.lab.forwarding import ForwardedPort, connect_inside
from tests.lab.wheels import native_module

DEPENDENCIES = "/opt/dependencies"
UNIT = "edgellm.service"
PREWARM = "edgellm-prewarm.service"
READY_TARGET = "edgellm-ready.target"
MODELS = "/var/lib/edgellm/models"
ENGINES = "/var/lib/edgellm/engines"
PORT = 8000
READY_SECONDS = 120.0
# The end token is banned: the answer is as long as max_tokens.
LONG = {"messages": [{"role": "user", "content": "Count."}], "logit_bias": {"2": -100}}


def dependencies_folder() -> Path:
    return Path(uvicorn.__file__).parents[1]


class Appliance:
    """What tests ask of a device that edgellm runs on."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @classmethod
    def make(
        cls,
        make_device: MakeDevice,
        name: str,
        wheel: Path,
        model: Path | None,
        more: Mapping[str, Path] | None = None,
    ) -> Appliance:
        """Not booted yet. ``model`` is the folder of the default model, None for a device without any.

        ``more`` are other folders of this machine that the device sees.
        """
        read_only = {DEPENDENCIES: dependencies_folder(), **(more or {})}
        if model is not None:
            read_only[f"{MODELS}/{model.name}"] = model
        made = cls(make_device(name, read_only=read_only))
        made._install_wheel(wheel)
        return made

    def _install_wheel(self, wheel: Path) -> None:
        root = self.device.root
        subprocess.run(["chroot", root, "python3", "-m", "venv", "--without-pip", "/opt/edgellm"], check=True)
        (site,) = (root / "opt/edgellm/lib").glob("python3.*/site-packages")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        native = native_module()
        (site / "edgellm" / native.name).write_bytes(native.read_bytes())
        # As pip does: the service may not write what was compiled.
        subprocess.run(["chroot", root, "python3", "-m", "compileall", "-q", "/opt/edgellm/lib"], check=True)
        (site / "dependencies.pth").write_text(f"{DEPENDENCIES}\n")
        entry = "import sys; from edgellm.cli.main import main; sys.exit(main())"
        self.device.write("/opt/edgellm/bin/edgellm", f"#!/opt/edgellm/bin/python\n{entry}\n", 0o755)

    def boot(self) -> Appliance:
        self.device.boot()
        return self

    def serve(self) -> Appliance:
        """From a new device to a ready server, as an administrator would."""
        self.boot().install()
        self.device.run("systemctl", "start", PREWARM, deadline_seconds=READY_SECONDS)
        self.start()
        return self

    def command(self, *arguments: str, check: bool = True, deadline_seconds: float = 300.0) -> Outcome:
        """``edgellm`` as the administrator calls it, once it is installed."""
        return self.device.run("/opt/edgellm/bin/edgellm", *arguments, check=check, deadline_seconds=deadline_seconds)

    def install(self, *options: str) -> Outcome:
        return self.command("install", "--mode", "venv", *options)

    def configure(self, text: str) -> None:
        """Replaces the configuration file."""
        self.device.write("/etc/edgellm/edgellm.toml", f'cache_dir = "/var/lib/edgellm"\n{text}')

    def drop_in(self, name: str, text: str, unit: str = UNIT) -> None:
        self.device.write(f"/etc/systemd/system/{unit}.d/{name}.conf", text)
        self.device.run("systemctl", "daemon-reload")

    # The server

    def start(self) -> None:
        """Returns when systemd says that it is ready."""
        self.device.run("systemctl", "start", UNIT, deadline_seconds=READY_SECONDS)

    def state(self, unit: str = UNIT) -> dict[str, str]:
        names = "ActiveState SubState Result MainPID NRestarts StatusText ExecMainStatus ExecMainCode InvocationID"
        return self.device.unit(unit, *names.split())

    def pid(self) -> int:
        return int(self.state()["MainPID"])

    def restarts(self) -> int:
        return int(self.state()["NRestarts"])

    def is_active(self, unit: str = UNIT) -> bool:
        return self.state(unit)["ActiveState"] == "active"

    def worker_pids(self) -> list[int]:
        """As the device numbers them."""
        listed = self.device.run("pgrep", "-f", "edgellm.service.worker_main", check=False).output
        return [int(word) for word in listed.split()]

    def loads_longer_than(self, limit_seconds: int) -> None:
        """Start with that limit, of which a load takes more; it must be ready in the end."""
        self.drop_in("short", f"[Service]\nTimeoutStartSec={limit_seconds}s\n")
        try:
            self.device.run("systemctl", "stop", UNIT)
            began = time.monotonic()
            self.device.run("systemctl", "--no-block", "start", UNIT)
            self.device.wait_for(self.worker_pids, "a worker")
            (worker,) = self.worker_pids()
            self.device.run("kill", "-STOP", str(worker))
            time.sleep(max(0.0, began + limit_seconds + 3 - time.monotonic()))
            assert self.state()["ActiveState"] == "activating"
            self.device.run("kill", "-CONT", str(worker))
            self.wait_until_active()
        finally:
            self.drop_in("short", "")

    def wait_until_active(self, what: str = "a ready server") -> None:
        self.device.wait_for(self.is_active, what, READY_SECONDS)

    def wait_until_failed(self, unit: str = UNIT) -> dict[str, str]:
        self.device.wait_for(
            lambda: self.state(unit)["ActiveState"] == "failed", f"the failure of {unit}", READY_SECONDS
        )
        return self.state(unit)

    def journal(self, unit: str = UNIT) -> str:
        return self.device.journal(unit)

    # Engines

    @property
    def engines(self) -> Path:
        return self.device.root / ENGINES.lstrip("/")

    def unfinished_engines(self) -> list[str]:
        """Files with content of builds that go on, or were left."""
        found = self.engines.glob(".*/*") if self.engines.is_dir() else ()
        return [path.name for path in found if path.is_file() and path.stat().st_size > 0]

    def cut_power_during_a_build(self) -> None:
        """What prewarms is not there yet."""
        self.device.run("systemctl", "--no-block", "start", PREWARM)
        deadline = time.monotonic() + READY_SECONDS
        while not self.unfinished_engines():
            assert time.monotonic() < deadline, self.journal(PREWARM)
        self.device.power_cut()
        assert self.unfinished_engines(), "the build was over already"
        assert not list(self.engines.glob("smollm2*")), "it was published already"

    # HTTP, from within

    def request(self, path: str, body: object = None, deadline_seconds: float = 60.0, **headers: str) -> httpx.Response:
        """Raises OSError where nobody listens, and when the server ends in between."""
        method = "GET" if body is None else "POST"
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {headers.pop('Host', 'localhost')}", "Connection: close"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        with connect_inside(self.device, PORT) as connection:
            connection.settimeout(deadline_seconds)
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + content)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        head, separator, body_bytes = received.partition(b"\r\n\r\n")
        if not separator:
            raise ConnectionError("the server ended before it answered")
        return httpx.Response(int(head.split(b" ")[1]), content=body_bytes)

    @contextmanager
    def stream(self, *, key: str | None = None, **fields: object) -> Iterator[Iterator[dict[str, Any]]]:
        """A chat that is streamed; the events as they come, once the first one is there."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        fields = {**LONG, "stream": True, **fields}
        with ForwardedPort(self.device, PORT) as forwarded, httpx.Client(timeout=READY_SECONDS) as client:
            url = f"{forwarded.url}/v1/chat/completions"
            with client.stream("POST", url, json=fields, headers=headers) as response:
                assert response.status_code == 200, response.read()
                events = _events(response)
                first = next(events)
                yield chain([first], events)

    def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.request("/health").json()
        return answer

    def chat(self, **fields: object) -> httpx.Response:
        fields = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, **fields}
        return self.request("/v1/chat/completions", fields)

    def answers(self) -> bool:
        with suppress(OSError):
            return self.request("/health/ready").status_code == 200 and self.chat().status_code == 200
        return False

    def wait_until_it_answers(self) -> None:
        self.device.wait_for(self.answers, "an answered request", READY_SECONDS)


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))
