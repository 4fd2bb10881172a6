"""Fleet: three devices of one kind, and what tests ask of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from testinfra import get_host
from testinfra.host import Host
from tests.fleet.control_host import API_KEY, ControlHost, Played
from tests.lab.device import Device

NAMES = ("dev1", "dev2", "dev3")
MODELS = "/var/lib/edgellm/models"
MODEL = "smollm2-135m-instruct"
SERVICE = "edgellm.service"
PREWARM = "edgellm-prewarm.service"
# What prewarming says while it builds an engine, and last.
BUILDING, BUILT = "copying the model", "publishing the bundle"
SETTINGS = {
    "server": {"host": "0.0.0.0"},
    "models": [{"source": MODEL, "max_batch_size": 2, "max_kv_cache_capacity": 1024}],
}
CLIENT = "front-desk"
SHORT_CHAT = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}


def made_by_roles(device: Device) -> str:
    """What the roles would make first, if it is there; "" on a bare device."""
    made = "ls -d /opt/edgellm* /etc/edgellm /usr/local/bin/edgellm /etc/ansible /etc/systemd/system/edgellm* 2>&-; :"
    return device.run("sh", "-c", made).output


class Fleet:
    """``devices`` by name; ``first`` is the only one with the model's own file."""

    def __init__(self, control: ControlHost, rootfs: Path, folder: Path, wheels: Path, model: Path) -> None:
        self.control, self._rootfs, self._folder, self.wheels = control, rootfs, folder, wheels
        self.devices: dict[str, Device] = {}
        self.left_by_bare_check = "not checked yet"
        self.model_file = {f"{MODELS}/{model.name}": model}
        for name in NAMES:
            self.add(name, self.model_file if name == NAMES[0] else {})
        self.write_inventory()

    def add(self, name: str, read_only: Mapping[str, Path] | None = None) -> Device:
        """A bare device, not booted yet."""
        device = Device(name, self._folder / name, self._rootfs, read_only=read_only or {}, bridge=self.control.bridge)
        self.devices[name] = self.control.admit(device)
        return device

    def drop(self, name: str) -> None:
        """A device that a test has added."""
        del self.control.devices[name]
        self.devices.pop(name).remove()
        self.write_inventory()

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
            "edgellm_control_command": str(Path(sys.executable).parent / "edgellm"),
            "preflight_disk_free_min_mib": 512,
        }

    def write_inventory(self, **of_devices: Mapping[str, Any]) -> None:
        self.control.write_inventory(self.variables, **of_devices)

    @cached_property
    def bare_check(self) -> Played:
        """Check mode on devices that nothing was installed on; asked for before ``provisioned``."""
        played = self.control.play("provision", "--check", limit=NAMES[1:2])
        self.left_by_bare_check = made_by_roles(self.devices[NAMES[1]])
        return played

    @cached_property
    def provisioned(self) -> Played:
        """From bare to serving, once a session. With -vvv: what it prints then holds no key."""
        _ = self.bare_check
        played = self.control.play("provision", "-vvv")
        assert played.code == 0, f"{played.output[-6000:]}\n{self.journals()}"
        return played

    def chat(self, device: Device, *, key: str = API_KEY) -> httpx.Response:
        return self.control.ask(device, "/v1/chat/completions", body=SHORT_CHAT, key=key)

    def builds(self, device: Device) -> int:
        """How often the device's prewarming published an engine that it built."""
        return device.journal(PREWARM).count(BUILT)

    def build_times(self, device: Device) -> str:
        """When prewarming began and ended to build, by the journal."""
        lines = device.journal(PREWARM, "--output=short-monotonic").splitlines()
        seconds = [float(line.partition("]")[0].strip("[ ")) for line in lines if BUILDING in line or BUILT in line]
        return f"build: {seconds[-1] - seconds[0]:.1f} s" if len(seconds) > 1 else "no build in the journal"

    def asked(self, device: Device) -> Host:
        """testinfra's view of the device, by ssh; to be used within ``asking``."""
        config = self.control.folder / "ssh_config"
        return get_host(f"ssh://{device.address}?sudo=true", ssh_config=str(config))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """What this thread starts is on the fleet's network."""
        with self.control.bridge.entered():
            yield

    def journals(self) -> str:
        """What the devices that run wrote last."""
        texts = []
        for name, device in self.devices.items():
            if device.leader:
                journal = device.journal("", "--lines=60", "--output=short-monotonic")
                texts.append(f"--- {name}\n{journal}")
        return "\n".join(texts)
