"""ControlHost: where an operator runs playbooks from: ssh keys, known hosts, an inventory, the installed collection."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.fleet.callbacks.end_after import RECORD_VARIABLE, STEP_VARIABLE
from tests.lab.bridge import Bridge
from tests.lab.device import Device
from tests.lab.rootfs import check_output
from tests.lab.wheels import CHECKOUT

PLAYBOOK_DEADLINE_SECONDS = 1800.0
CALLBACKS = Path(__file__).parent / "callbacks"
REQUEST_DEADLINE_SECONDS = 60.0
USER = "ops"
PORT = 8000
# Of the whole fleet, as an operator has it in a vault.
API_KEY = "planted-key-of-the-front-desk-5d1f"
BIN = Path(sys.executable).parent
# Another Ansible than this environment's, such as the oldest that the collection's README names.
ANSIBLE = Path(os.environ.get("EDGELLM_ANSIBLE_BIN") or BIN)
RECAP = re.compile(
    r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)\s+skipped=(\d+)", re.MULTILINE
)


# How ansible-playbook ends.
FAILED, UNREACHABLE = 2, 4
TABLE_COLUMNS = (
    *("board", "ready", "version", "release", "image", "engines", "models"),
    *("tokens/s", "power mode", "celsius", "free MB"),
)


@dataclass(frozen=True, slots=True)
class Recap:
    """The last line of a playbook for one device."""

    ok: int
    changed: int
    unreachable: int
    failed: int


@dataclass(frozen=True, slots=True)
class Played:
    code: int
    output: str
    seconds: float

    @property
    def recap(self) -> Mapping[str, Recap]:
        return ControlHost.recap_of(self.output)

    def table_row(self, board: str) -> Mapping[str, str]:
        """What ``verify`` says of a board, by column."""
        lines = (line.strip().strip('",').split() for line in self.output.splitlines())
        (row,) = (fields for fields in lines if fields[:1] == [board] and len(fields) == len(TABLE_COLUMNS))
        return dict(zip(TABLE_COLUMNS, row, strict=True))

    @property
    def changed_tasks(self) -> list[str]:
        """What changed something, for a failure's text."""
        names = []
        task = ""
        for line in self.output.splitlines():
            if line.startswith(("TASK [", "RUNNING HANDLER [")):
                task = line.partition("[")[2].rpartition("]")[0]
            elif line.startswith("changed: ["):
                names.append(f"{task} {line}")
        return names


class ControlHost:
    """Its folder is its home; it reaches devices over the bridge alone."""

    def __init__(self, folder: Path, bridge: Bridge) -> None:
        self.folder, self.bridge = folder, bridge
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.key = folder / "id"
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self.devices: dict[str, Device] = {}
        check_output(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", USER, "-f", str(self.key)])
        (folder / "ansible.cfg").write_text(
            "[defaults]\ntimeout = 60\n"
            f"inventory = {folder}/hosts.json\n"
            f"collections_path = {folder}/collections\n"
            f"local_tmp = {folder}/tmp\n"
            "host_key_checking = true\n"
            "retry_files_enabled = false\n"
            "nocows = true\n"
            "deprecation_warnings = true\n"
            f"[ssh_connection]\npipelining = true\nssh_args = -F {folder}/ssh_config\n"
        )
        (folder / "ssh_config").write_text(
            f"Host *\n  User {USER}\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n  BatchMode yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  StrictHostKeyChecking yes\n  ConnectTimeout 10\n"
            f"  ControlMaster auto\n  ControlPersist 30s\n  ControlPath {folder}/%C\n"
            "  ServerAliveInterval 5\n  ServerAliveCountMax 3\n"
        )

    def install_collection(self) -> None:
        """As the README does, from the checkout: what a package of it leaves out is not there."""
        source, target = str(CHECKOUT / "ansible"), str(self.folder / "collections")
        self._check("ansible-galaxy", "collection", "install", "--offline", source, "--collections-path", target)

    def admit(self, device: Device) -> Device:
        """Give ``device``, not booted yet, what an operator is handed: a user for ssh and sudo, a known host key."""
        root = str(device.root)
        check_output(["chroot", root, "useradd", "--create-home", "--shell", "/bin/bash", USER])
        device.write(f"/etc/sudoers.d/{USER}", f"{USER} ALL=(ALL) NOPASSWD: ALL\n", 0o440)
        device.write(f"/home/{USER}/.ssh/authorized_keys", self.key.with_suffix(".pub").read_text(), 0o600)
        check_output(["chroot", root, "chown", "-R", f"{USER}:{USER}", f"/home/{USER}/.ssh"])
        check_output(["chroot", root, "sh", "-c", "rm -f /etc/ssh/ssh_host_*; ssh-keygen -A"])
        check_output(["chroot", root, "systemctl", "--quiet", "enable", "ssh.service"])
        public = (device.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
        with self.known_hosts.open("a") as stream:
            stream.write(f"{device.address} {' '.join(public)}\n")
        self.devices[device.name] = device
        return device

    def write_inventory(self, variables: Mapping[str, Any], **of_devices: Mapping[str, Any]) -> None:
        """All admitted devices in the group ``edgellm``; ``of_devices`` are variables of single ones."""
        hosts = {
            name: {"ansible_host": device.address, "ansible_python_interpreter": "/usr/bin/python3"}
            | dict(of_devices.get(name, {}))
            for name, device in self.devices.items()
        }
        inventory = {"all": {"children": {"edgellm": {"hosts": hosts, "vars": dict(variables)}}}}
        (self.folder / "hosts.json").write_text(json.dumps(inventory, indent=1))

    def play(
        self,
        playbook: str,
        *options: str,
        variables: Mapping[str, Any] | None = None,
        limit: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Played:
        """Run a playbook of the collection; whatever comes of it."""
        arguments = [f"edgellm.appliance.{playbook}", *options]
        if variables:
            arguments += ["--extra-vars", json.dumps(dict(variables))]
        if limit:
            arguments += ["--limit", ",".join(limit)]
        began = time.monotonic()
        completed = self._run("ansible-playbook", *arguments, environment=environment)
        return Played(completed.returncode, completed.stdout, time.monotonic() - began)

    def play_until(self, record: Path, step: str, playbook: str, **given: Any) -> Played:
        """The control host dies as soon as ``record`` of a board has ``step``, such as "drained done", last."""
        environment = {
            "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
            RECORD_VARIABLE: str(record),
            STEP_VARIABLE: step,
        }
        return self.play(playbook, environment=environment, **given)

    def start(self, playbook: str, *options: str) -> subprocess.Popen[str]:
        """The same, to go on meanwhile; its output comes through ``stdout``."""
        return subprocess.Popen(
            [*self.bridge.enter(), str(ANSIBLE / "ansible-playbook"), f"edgellm.appliance.{playbook}", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environ(),
            cwd=self.folder,
        )

    @staticmethod
    def recap_of(output: str) -> Mapping[str, Recap]:
        return {row[0]: Recap(*map(int, row[1:5])) for row in RECAP.findall(output)}

    @contextmanager
    def strange_key(self, device: Device) -> Iterator[None]:
        """Meanwhile the control host knows the device by another host key than it has."""
        known = self.known_hosts.read_text()
        other = self.folder / "strange"
        check_output(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)])
        public = " ".join(other.with_suffix(".pub").read_text().split()[:2])
        rest = [line for line in known.splitlines() if line.split()[0] != device.address]
        self.known_hosts.write_text("\n".join([*rest, f"{device.address} {public}", ""]))
        self.forget_connections()
        try:
            yield
        finally:
            self.known_hosts.write_text(known)
            other.unlink()
            other.with_suffix(".pub").unlink()

    @contextmanager
    def refused_key(self, device: Device) -> Iterator[None]:
        """Meanwhile the device takes no key of the control host."""
        admitted = device.root / f"home/{USER}/.ssh/authorized_keys"
        kept = admitted.read_text()
        admitted.write_text("")
        self.forget_connections()
        try:
            yield
        finally:
            admitted.write_text(kept)

    def forget_connections(self) -> None:
        """Connections that ssh keeps open for the next command."""
        for device in self.devices.values():
            self._run_ssh("-O", "exit", device.address)

    def ask(
        self,
        device: Device,
        path: str,
        *,
        body: object = None,
        key: str = API_KEY,
        authority: Path | None = None,
        named: str = "",
    ) -> httpx.Response:
        """As a client on the network asks, by HTTPS where it trusts an authority, whose certificate must have the
        address, or the name that is given. Raises httpx.TransportError.
        """
        verify = ssl.create_default_context(cafile=authority) if authority else True
        url = f"{'https' if authority else 'http'}://{device.address}:{PORT}{path}"

        def send() -> httpx.Response:
            with httpx.Client(timeout=REQUEST_DEADLINE_SECONDS, trust_env=False, verify=verify) as client:
                method = "GET" if body is None else "POST"
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                extensions = {"sni_hostname": named} if named else {}
                return client.request(method, url, json=body, headers=headers, extensions=extensions)

        return self.bridge.inside(send)

    def _run_ssh(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.bridge.enter(), "ssh", "-F", str(self.folder / "ssh_config"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=PLAYBOOK_DEADLINE_SECONDS,
        )

    def _check(self, *command: str) -> None:
        completed = self._run(*command)
        assert completed.returncode == 0, completed.stdout

    def _run(
        self, program: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.bridge.enter(), str(ANSIBLE / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**self._environ(), **(environment or {})},
            cwd=self.folder,
            timeout=PLAYBOOK_DEADLINE_SECONDS,
            check=False,
        )

    def _environ(self) -> dict[str, str]:
        """Nothing of this machine's own settings for Ansible, Python or ssh."""
        kept = {name: os.environ[name] for name in ("LANG", "TERM", "TZ") if name in os.environ}
        return {
            **kept,
            "PATH": f"{ANSIBLE}:{BIN}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": "0",
        }
