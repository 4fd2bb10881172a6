"""HAProxy as the role configures it, in a process of the test's own: rendered by Ansible, checked, run, reloaded."""

from __future__ import annotations

import atexit
import csv
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import httpx

COLLECTION = Path(__file__).parents[2] / "ansible"
HAPROXY = "/usr/sbin/haproxy"
ROLE = COLLECTION / "roles/gateway"
STATE_DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.05


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@cache
def know_the_collection() -> None:
    """Have Ansible find the plugins of the checkout, in this process."""
    from ansible.plugins.loader import init_plugin_loader

    folder = Path(tempfile.mkdtemp(prefix="edgellm-collections-"))
    atexit.register(shutil.rmtree, folder)
    (folder / "ansible_collections/edgellm").mkdir(parents=True)
    (folder / "ansible_collections/edgellm/appliance").symlink_to(COLLECTION)
    init_plugin_loader([str(folder)])


def rendered(template: Path, variables: Mapping[str, Any]) -> str:
    """The template as Ansible fills it, by the role's own defaults and variables under the given ones."""
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar, trust_as_template

    know_the_collection()
    loader = DataLoader()
    known: dict[str, Any] = {"ansible_managed": "Ansible managed"}
    for file in (ROLE / "defaults/main.yml", ROLE / "vars/main.yml"):
        known |= loader.load_from_file(str(file), trusted_as_template=True)
    templar = Templar(loader=loader, variables={**known, **variables})
    return str(templar.template(trust_as_template(template.read_text())))


class GatewayProcess:
    """``boards`` maps a name to its address and port. Use ``start``, ``configure`` and ``reload``, then ``stop``."""

    def __init__(self, folder: Path, boards: Mapping[str, tuple[str, int]], **variables: Any) -> None:
        self.folder = folder
        self.config = folder / "haproxy.cfg"
        self.socket = folder / "admin.sock"
        self.state_file = folder / "state"
        self.port, self.stats_port = free_port(), free_port()
        self.log = folder / "haproxy.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._variables = {
            "gateway_address": "127.0.0.1",
            "gateway_port": self.port,
            "gateway_tls": False,
            "gateway_stats_port": self.stats_port,
            "gateway_peer_port": free_port(),
            "gateway_config_file": str(self.config),
            "gateway_certificates_folder": str(folder),
            "gateway_socket": str(self.socket),
            "gateway_state_file": str(self.state_file),
            "gateway_check_interval_seconds": 1,
            "gateway_silent_board_seconds": 5,
            **variables,
        }
        self.configure(boards)

    @property
    def url(self) -> str:
        return f"{'https' if self._variables['gateway_tls'] else 'http'}://127.0.0.1:{self.port}"

    def configure(self, boards: Mapping[str, tuple[str, int]], **variables: Any) -> None:
        """Write the configuration of these boards, where HAProxy takes it. Raises AssertionError with what it says."""
        self._variables |= variables
        hosts = {
            name: {"gateway_board_address": address, "edgellm_settings": {"server": {"port": port}}}
            for name, (address, port) in boards.items()
        }
        facts = {"hostname": "gateway", "fqdn": "gateway.test", "all_ipv4_addresses": ["127.0.0.1"]}
        variables = {
            **self._variables,
            "gateway_digest": "of-a-test",
            "inventory_hostname": "gateway",
            "ansible_facts": facts,
            "groups": {"edgellm": list(boards)},
            "hostvars": hosts,
        }
        if authorities := self._variables.get("gateway_board_authorities"):
            (self.folder / "boards.pem").write_text(authorities)
        unchecked = self.config.with_suffix(".new")
        unchecked.write_text(rendered(ROLE / "templates/haproxy.cfg.j2", variables))
        checked = subprocess.run([HAPROXY, "-c", "-f", unchecked], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        unchecked.rename(self.config)

    def start(self) -> GatewayProcess:
        with self.log.open("ab") as log:
            command = [HAPROXY, "-W", "-f", str(self.config)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_for(lambda: bool(self.boards()), "its boards")
        return self

    def reload(self) -> None:
        """As its unit does it. Returns when the new process serves."""
        assert self._process is not None
        self.runtime("keep", str(self.socket), str(self.config), str(self.state_file))
        before = self._worker()
        self._process.send_signal(signal.SIGUSR2)
        self.wait_for(lambda: self._worker() not in ("", before), "the next process")

    @staticmethod
    def runtime(*words: str) -> None:
        """The role's program, as HAProxy's unit calls it."""
        subprocess.run([sys.executable, "-I", ROLE / "files/haproxy-runtime", *words], check=True)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STATE_DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise

    # What it says of itself

    def ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(STATE_DEADLINE_SECONDS)
            connection.connect(str(self.socket))
            connection.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def boards(self) -> dict[str, dict[str, str]]:
        """Statistics of every board, by name; none while nobody answers."""
        try:
            table = self.ask("show stat -1 4 -1").removeprefix("# ").splitlines()
        except OSError:
            return {}
        return {row["svname"]: row for row in csv.DictReader(table) if row["pxname"] == "boards"}

    def statuses(self) -> dict[str, str]:
        return {name: row["status"].split()[0] for name, row in self.boards().items()}

    def up(self) -> set[str]:
        """Boards that a check of this process found ready."""
        return {
            name
            for name, row in self.boards().items()
            if row["status"].startswith("UP") and row["check_status"] == "L7OK"
        }

    def in_flight(self, board: str) -> int:
        return int(self.boards()[board]["scur"])

    def requests(self) -> dict[str, int]:
        """Requests that each board was given by the present process."""
        return {name: int(row["stot"]) for name, row in self.boards().items()}

    def knows_its_clients(self) -> bool:
        """Whether it has learned all it will from a process of before, and so teaches the next one."""
        return "resync_timeout=<PAST>" in self.ask("show peers")

    def wait_until_up(self, *names: str) -> None:
        self.wait_for(lambda: self.up() == set(names), f"{', '.join(names)} alone ready")

    def wait_for(
        self, condition: Callable[[], bool], what: str, deadline_seconds: float = STATE_DEADLINE_SECONDS
    ) -> None:
        deadline = time.monotonic() + deadline_seconds
        while not condition():
            assert self._process is None or self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"did not come: {what}\n{self.statuses()}\n{self.log.read_text()}"
            time.sleep(POLL_SECONDS)

    def board_module(self, *, check: bool = False, **arguments: object) -> dict[str, Any]:
        """What the collection's module answers that a rollout uses."""
        given = {
            "socket": str(self.socket),
            "state_file": str(self.state_file),
            **arguments,
            "_ansible_check_mode": check,
        }
        module = COLLECTION / "plugins/modules/gateway_board.py"
        done = subprocess.run(
            [sys.executable, module],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": given}),
            capture_output=True,
            text=True,
            timeout=STATE_DEADLINE_SECONDS * 2,
            check=False,
        )
        assert done.stdout, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def _worker(self) -> str:
        try:
            shown = self.ask("show info")
        except OSError:
            return ""
        return next(line for line in shown.splitlines() if line.startswith("Pid:"))


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, timeout=STATE_DEADLINE_SECONDS, **options)
