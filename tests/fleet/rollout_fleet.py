"""RolloutFleet: boards that serve behind a gateway, and the host that rolls releases out to them.

Boards are as an administrator made them: wheel, `edgellm install`, keys. What edgellm depends on is bound in, so that a
release is one wheel and takes seconds.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
from tests.fleet.control_host import API_KEY, PORT, ControlHost, Played
from tests.fleet.fleet import BUILT
from tests.lab.bridge import Bridge
from tests.lab.device import Device
from tests.lab.wheels import Change, release_wheel
from tests.service.appliance import DEPENDENCIES, PREWARM, Appliance
from tests.service.release_wheels import BROKEN, other_engines

BOARDS = ("board1", "board2", "board3")
GATEWAY = "gateway1"
GATEWAY_CERTIFICATE = "etc/haproxy/edgellm/gateway.crt"  # it made it itself
MODEL = "smollm2-135m-instruct"
CONFIGURATION = """[server]
host = "0.0.0.0"
api_keys_file = "/etc/edgellm/credentials/api-keys"
[[models]]
source = "smollm2-135m-instruct"
max_batch_size = 2
max_kv_cache_capacity = 1024
"""
STEPS = ("staged", "out_of_gateway", "drained", "switched", "ready", "smoke", "back_in")
DEADLINE_SECONDS = 300.0
PAUSE_SECONDS = 0.2  # of a client between two requests: boards and playbooks share this machine
SHORT = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4, "temperature": 0}


class RolloutFleet:
    def __init__(
        self,
        folder: Path,
        bridge: Bridge,
        rootfs: Path,
        gateway_rootfs: Path,
        wheel: Path,
        model: Path,
    ) -> None:
        self.bridge = bridge
        self.control = ControlHost(folder / "control", bridge)
        self.control.install_collection()
        self._folder, self._wheel = folder, wheel
        self.boards: dict[str, Appliance] = {}
        self.devices: list[Device] = []

        def make_device(name: str, lower: Path = rootfs, *, read_only: Mapping[str, Path] | None = None) -> Device:
            device = Device(name, folder / name, lower, read_only=read_only, bridge=bridge)
            self.devices.append(self.control.admit(device))
            return device

        for name in BOARDS:
            self.boards[name] = Appliance.make(make_device, name, wheel, model)
        self.gateway = make_device(GATEWAY, gateway_rootfs)
        self.bare_gateway_check = Played(1, "not checked yet", 0.0)
        self.left_by_bare_gateway_check = "not checked yet"

    def serve(self) -> RolloutFleet:
        for device in self.devices:
            device.boot()
        with ThreadPoolExecutor(len(BOARDS)) as together:
            list(together.map(self._make_serve, self.boards.values()))
        self.write_inventory()
        self.bare_gateway_check = self.control.play("gateway", "--check")
        made = (
            "ls -d /etc/haproxy/edgellm /etc/systemd/system/haproxy.service.d 2>&-; grep boards /etc/haproxy/*.cfg; :"
        )
        self.left_by_bare_gateway_check = self.gateway.run("sh", "-c", made).output
        played = self.play("gateway")
        assert played.code == 0, played.output
        self.wait_until_all_are_in()
        return self

    @staticmethod
    def _make_serve(board: Appliance) -> None:
        board.install()
        board.configure(CONFIGURATION)
        board.device.write("/etc/edgellm/credentials/api-keys", f"fleet:{API_KEY}\n", 0o640)
        board.device.run("chgrp", "edgellm", "/etc/edgellm/credentials/api-keys")
        board.device.run("systemctl", "start", "edgellm-prewarm", deadline_seconds=DEADLINE_SECONDS)
        board.start()

    def remove(self) -> None:
        for device in self.devices:
            device.remove()

    def write_inventory(self, boards: tuple[str, ...] = BOARDS, **variables: Any) -> None:
        def host(device: Device) -> dict[str, str]:
            return {"ansible_host": device.address, "ansible_python_interpreter": "/usr/bin/python3"}

        groups = {
            "edgellm": {"hosts": {name: host(self.boards[name].device) for name in boards}},
            "gateway": {"hosts": {GATEWAY: host(self.gateway)}, "vars": {"gateway_check_interval_seconds": 1}},
            "observability": {"hosts": {GATEWAY: {}}},
        }
        inventory = {"all": {"children": groups, "vars": {"rollout_ready_seconds": 300, **variables}}}
        (self.control.folder / "hosts.json").write_text(json.dumps(inventory, indent=1))

    def play(self, playbook: str, *options: str, limit: Sequence[str] = (), **variables: Any) -> Played:
        return self.control.play(playbook, *options, variables=variables, limit=limit)

    def roll_out(self, source: str | Path, *, limit: Sequence[str] = (), **variables: Any) -> Played:
        """``source`` is a path on the control host."""
        return self.play("rollout", limit=limit, rollout_source=str(source), **variables)

    def roll_out_until(self, step: str, board: str, source: Path | str) -> Played:
        """To one board; the control host dies once ``step`` is done."""
        return self.control.play_until(
            self.record_file(board), f"{step} done", "rollout", variables={"rollout_source": str(source)}, limit=[board]
        )

    def release(self, version: str) -> Path:
        return self._made(version, {})

    def relative(self, source: Path) -> str:
        """As somebody names it who stands where playbooks are called."""
        return os.path.relpath(source, self.control.folder)

    def broken_release(self, version: str) -> Path:
        """Its service ends as soon as it is started."""
        name, change = BROKEN["ends-at-its-start"]
        return self._made(version, {name: change})

    def release_of_other_engines(self, version: str, layout: int) -> Path:
        """It needs each engine anew; ``layout`` is of its engines."""
        return self._made(version, other_engines(layout))

    def release_that_builds_nothing(self, version: str, layout: int) -> Path:
        """It needs each engine anew, and no build of it ends well."""
        return self._made(version, other_engines(layout) | dict([BROKEN["builds-nothing"]]))

    def builds(self) -> dict[str, int]:
        """How often each board published an engine that it built."""
        return {name: board.device.journal(PREWARM).count(BUILT) for name, board in self.boards.items()}

    def _made(self, version: str, changes: Mapping[str, Change]) -> Path:
        folder = self._folder / "releases" / version
        found = list(folder.glob("*.whl"))
        if found:
            return found[0]
        return release_wheel(self._wheel, folder, version, changes=changes, dependencies=DEPENDENCIES)

    # What is so

    def record_file(self, board: str) -> Path:
        return self.control.home / f".local/state/edgellm/rollout/{board}.json"

    def record(self, board: str) -> dict[str, Any]:
        file = self.record_file(board)
        value: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return value

    def report_file(self, board: str) -> Path:
        """Of a failure."""
        return self.record_file(board).with_suffix(".report.txt")

    def steps(self, board: str) -> list[tuple[str, str]]:
        return [(one["step"], one["state"]) for one in self.record(board).get("steps", [])]

    def ticket(self, board: str) -> str:
        """Of the latest rollout to it; "" before the first."""
        return str(self.record(board).get("ticket", ""))

    def wait_until_begun(self, board: str, step: str, ticket_before: str) -> None:
        """By a rollout that is later than the one of ``ticket_before``."""
        self.gateway.wait_for(
            lambda: self.ticket(board) != ticket_before and (step, "begun") in self.steps(board),
            f"{step} of {board}",
            DEADLINE_SECONDS,
        )

    def version(self, board: str) -> str:
        """Of what answers."""
        return str(self.control.ask(self.boards[board].device, "/health").json()["version"])

    def kept(self, board: str) -> list[str]:
        """Versions of earlier releases that it can go back to, the latest last."""
        return [str(one["version"]) for one in self._releases(board)["kept"] if one["present"]]

    def release_id(self, board: str) -> str:
        """Of the release that serves."""
        return str(self._releases(board)["current"]["id"])

    def _releases(self, board: str) -> dict[str, Any]:
        listed: dict[str, Any] = json.loads(
            self.boards[board].device.run("edgellm", "upgrade", "--list", "--json").output
        )
        return listed

    def asked_board(self) -> str:
        """The one that the gateway keeps its clients at: they have one key."""
        shown = self.gateway.run("python3", "-c", _ASK, "show table boards").output
        return str(re.findall(r"server_key=(\S+)", shown)[-1])

    def versions(self) -> set[str]:
        return {self.version(name) for name in BOARDS}

    def statuses(self) -> dict[str, str]:
        """By HAProxy: UP, DOWN or MAINT, by board."""
        said = self.gateway.run(
            *("python3", "-c", _ASK, "show stat -1 4 -1"),
        ).output
        rows = [line.split(",") for line in said.splitlines() if line.startswith("boards,")]
        return {row[1]: row[17].split()[0] for row in rows}

    def wait_until_all_are_in(self) -> None:
        self.gateway.wait_for(
            lambda: set(self.statuses().values()) == {"UP"}, "all boards in the gateway", DEADLINE_SECONDS
        )

    def client(self, address: str | None = None) -> SteadyClient:
        """Of the gateway, or of one board."""
        if address is not None:
            return SteadyClient(self.bridge, f"http://{address}:{PORT}/v1", trusts=None)
        return SteadyClient(self.bridge, f"https://{self.gateway.address}/v1", self.gateway.root / GATEWAY_CERTIFICATE)

    def journals(self) -> str:
        options = ("--lines=60", "--output=short-monotonic")
        running = [device for device in self.devices if device.leader]
        return "\n".join(f"--- {device.name}\n{device.journal('', *options)}" for device in running)


_ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect("/run/haproxy/admin.sock")
    connection.sendall(sys.argv[1].encode() + b"\\n")
    print(b"".join(iter(lambda: connection.recv(65536), b"")).decode())
"""


class SteadyClient:
    """An OpenAI client on the bridge that asks one thing after another; ``failures`` says what went wrong, and
    ``longest_gap_seconds`` how long it was between two answers at most."""

    def __init__(self, bridge: Bridge, url: str, trusts: Path | None) -> None:
        verify = True if trusts is None else ssl.create_default_context(cafile=trusts)
        http_client = openai.DefaultHttpxClient(verify=verify, trust_env=False, timeout=DEADLINE_SECONDS)
        self._client = openai.OpenAI(base_url=url, api_key=API_KEY, max_retries=0, http_client=http_client)
        self._stopping = threading.Event()
        self.answered = 0
        self.failures: list[str] = []
        self.longest_gap_seconds = 0.0
        self._thread = threading.Thread(target=lambda: bridge.inside(self._ask), daemon=True)

    def __enter__(self) -> SteadyClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_SECONDS)
        self._client.close()

    def wait_for_answers(self, count: int, wait_for: Callable[..., None]) -> None:
        wanted = self.answered + count
        wait_for(lambda: self.answered >= wanted, "answers", DEADLINE_SECONDS)

    def _ask(self) -> None:
        last = time.monotonic()
        while not self._stopping.is_set():
            try:
                self._client.chat.completions.create(model=MODEL, **SHORT)  # type: ignore[call-overload]
            except openai.OpenAIError as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                self._stopping.wait(0.1)
                continue
            now = time.monotonic()
            self.answered += 1
            self.longest_gap_seconds = max(self.longest_gap_seconds, now - last)
            last = now
            self._stopping.wait(PAUSE_SECONDS)
