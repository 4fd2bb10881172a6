"""Fleet: three devices of one kind, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from tests.fleet.control_host import ControlHost, Played
from tests.lab.device import Device

NAMES = ("dev1", "dev2", "dev3")
PORT = 8000
MODELS = "/var/lib/edgellm/models"
MODEL = "smollm2-135m-instruct"
SERVICE = "edgellm.service"
PREWARM = "edgellm-prewarm.service"
REQUEST_DEADLINE_SECONDS = 60.0
SETTINGS = {
    "server": {"host": "0.0.0.0"},
    "models": [{"source": MODEL, "max_batch_size": 2, "max_kv_cache_capacity": 1024}],
}
# As an operator has it in a vault.
API_KEY = "planted-key-of-the-front-desk-5d1f"
CLIENT = "front-desk"


class Fleet:
    """``devices`` by name; ``first`` is the only one with the model's own file."""

    def __init__(self, control: ControlHost, rootfs: Path, folder: Path, wheels: Path, model: Path) -> None:
        self.control, self._rootfs, self._folder, self.wheels = control, rootfs, folder, wheels
        self.devices: dict[str, Device] = {}
        for name in NAMES:
            self.add(name, {f"{MODELS}/{model.name}": model} if name == NAMES[0] else {})
        self.write_inventory()

    def add(self, name: str, read_only: Mapping[str, Path] | None = None) -> Device:
        """A bare device, not booted yet."""
        device = Device(name, self._folder / name, self._rootfs, read_only=read_only or {}, bridge=self.control.bridge)
        self.devices[name] = self.control.admit(device)
        return device

    def boot(self) -> None:
        for device in self.devices.values():
            device.boot()

    def remove(self) -> None:
        for device in self.devices.values():
            device.remove()

    @property
    def first(self) -> Device:
        return self.devices[NAMES[0]]

    @property
    def variables(self) -> dict[str, Any]:
        """Of a fleet in virtual environments, with one key for all."""
        return {
            "edgellm_mode": "venv",
            "edgellm_wheels": str(self.wheels),
            "edgellm_settings": SETTINGS,
            "edgellm_api_keys": [{"name": CLIENT, "key": API_KEY}],
            "edgellm_firewall_sources": [self.control.bridge.address],
            "edgellm_control_command": str(Path(__import__("sys").executable).parent / "edgellm"),
            "preflight_disk_free_min_mib": 512,
        }

    def write_inventory(self, **of_devices: Mapping[str, Any]) -> None:
        self.control.write_inventory(self.variables, **of_devices)

    @cached_property
    def bare_check(self) -> Played:
        """Check mode on devices that nothing was installed on; asked for before ``provisioned``."""
        return self.control.play("provision", "--check", limit=NAMES[1:2])

    @cached_property
    def provisioned(self) -> Played:
        """From bare to serving, once a session. With -vvv: what it prints then holds no key."""
        _ = self.bare_check
        played = self.control.play("provision", "-vvv")
        assert played.code == 0, f"{played.output[-6000:]}\n{self.journals()}"
        return played

    def request(self, device: Device, path: str, *, body: object = None, key: str = API_KEY) -> httpx.Response:
        """As a client on the network sends it. Raises httpx.TransportError where nothing answers."""

        def send() -> httpx.Response:
            with httpx.Client(timeout=REQUEST_DEADLINE_SECONDS, trust_env=False) as client:
                method = "GET" if body is None else "POST"
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                return client.request(method, f"http://{device.address}:{PORT}{path}", json=body, headers=headers)

        return self.control.bridge.inside(send)

    def chat(self, device: Device, *, key: str = API_KEY) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
        return self.request(device, "/v1/chat/completions", body=body, key=key)

    def journals(self) -> str:
        """What the devices that run wrote last."""
        texts = []
        for name, device in self.devices.items():
            if device.leader:
                journal = device.journal("", "--lines=60", "--output=short-monotonic")
                texts.append(f"--- {name}\n{journal}")
        return "\n".join(texts)
