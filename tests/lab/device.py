"""Device: a small system with its own systemd, journal, network and limits, in a container of systemd-nspawn."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.lab.bridge import INTERFACE, Bridge
from tests.lab.cgroups import LIMITING, make_groups, remove_groups
from tests.lab.layers import Layers
from tests.lab.overlay_folder import OverlayFolder
from tests.lab.rootfs import check_output

BOOT_DEADLINE_SECONDS = 60.0
STATE_DEADLINE_SECONDS = 60.0
COMMAND_DEADLINE_SECONDS = 120.0
POLL_SECONDS = 0.1
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What podman needs to start containers in a device: rights to hand out, and system calls that nspawn keeps from others.
FOR_CONTAINERS = ("--capability=all", "--system-call-filter=keyctl bpf add_key @keyring")
IMAGES = "/var/lib/containers"
# There are no controllers of version 2 to limit with where version 1 has them.
CONTAINERS_CONFIGURATION = """[containers]
pids_limit = 0
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""
ENVIRONMENT = {"PATH": SEARCH_PATH, "HOME": "/root", "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    output: str


class Device:
    """Booted by ``boot``, gone with ``remove``. Files written below ``root`` are the device's own at once."""

    def __init__(
        self,
        name: str,
        folder: Path,
        rootfs: Path,
        *,
        read_only: Mapping[str, Path] | None = None,
        runs_containers: bool = False,
        has_terminal: bool = False,
        bridge: Bridge | None = None,
    ) -> None:
        """``read_only`` are folders of this machine that the device sees, by their path there. One that runs containers
        has control groups of version 2 alone, and limits hold only where this machine has no others. With a terminal
        ``/dev/console`` is one, with a login prompt, as on a board with a monitor; without there is none. With a
        ``bridge`` it is on that network with ``address``, else on one where it is alone.
        """
        self.name = name
        self.runs_containers = runs_containers
        self._layers = Layers(rootfs, folder)
        self.root = self._layers.root
        self._console = folder / "console.log"
        self._binds = [f"--bind-ro={there}:{path}" for path, there in (read_only or {}).items()]
        self._groups: list[Path] = []
        self._images: OverlayFolder | None = None
        self._nspawn: subprocess.Popen[bytes] | None = None
        self.boot_deadline_seconds = BOOT_DEADLINE_SECONDS
        self.leader = 0
        self._identity = uuid.uuid4().hex  # several laboratories may have a device of this name
        self.write("/etc/machine-id", f"{self._identity}\n")
        self.write("/etc/hostname", f"{name}\n")
        if runs_containers:
            # Not on the device's overlay: images are overlays themselves.
            self._images = OverlayFolder(folder / "images")
            self._binds.append(f"--bind={self._images.path}:{IMAGES}")
            self.write("/etc/containers/containers.conf", CONTAINERS_CONFIGURATION)
        self._console_mode = "read-only" if has_terminal else "pipe"
        self._bridge = bridge
        self.address = ""
        if bridge is not None:
            self.address = bridge.new_address()
            self._join_network()

    @property
    def stored_image_bytes(self) -> int:
        """Of podman's images and containers, and of what it has in between, also while the device is off."""
        assert self._images is not None, f"{self.name} runs no containers"
        listed = subprocess.run(
            ["du", "-xsb", str(self._images.path), str(self.root / "var/tmp")],
            capture_output=True,
            text=True,
            check=False,  # files come and go meanwhile
        )
        return sum(int(line.split()[0]) for line in listed.stdout.splitlines())

    # Life

    def boot(self) -> Device:
        """Return when systemd has started what it starts."""
        self.start_booting()
        self._wait_until_up()
        return self

    def start_booting(self) -> None:
        """Return at once: for a power cut in the middle of it."""
        assert self._nspawn is None, f"{self.name} runs"
        self._groups = make_groups(f"{self.name}-{self._identity[:8]}", version_2_alone=self.runs_containers)
        nspawn = [
            *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"),
            f"--console={self._console_mode}",
            "--private-network" if self._bridge is None else f"--network-bridge={INTERFACE}",
            *("--link-journal=no", "--resolv-conf=off", "--timezone=off"),
            *(f"--machine={self.name}", f"--directory={self.root}"),
            *self._binds,
        ]
        if self.runs_containers:
            alone = 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"'
            nspawn = [
                *("unshare", "--mount", "--propagation=private", "sh", "-c", alone, "sh"),
                *nspawn,
                *FOR_CONTAINERS,
            ]
        network = [] if self._bridge is None else self._bridge.enter()
        enter = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'
        with self._console.open("ab") as console:
            self._nspawn = subprocess.Popen(
                ["sh", "-c", enter, "sh", *map(str, self._groups), "--", *network, *nspawn],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                process_group=0,
                env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            )

    def reboot(self) -> None:
        """An orderly one, as an administrator's."""
        self.run("systemctl", "--no-block", "reboot")
        self._ended(BOOT_DEADLINE_SECONDS)  # whoever started nspawn is to start it again
        self.boot()

    def power_off(self) -> None:
        """An orderly one: units are stopped."""
        self.run("systemctl", "--no-block", "poweroff")
        self._ended(BOOT_DEADLINE_SECONDS)

    def power_cut(self) -> None:
        """Nothing of the device runs from one moment to the next; what it wrote stays."""
        leader = self.leader or self._find_leader()
        if leader:
            # The first process lets go of its sockets before the others end: they would see it go, and act on it.
            entrances = _stop_all_of(leader)
            with suppress(ProcessLookupError):
                os.kill(leader, signal.SIGKILL)  # the end of a namespace's first process is the end of all
            _let_end(entrances)
        if self._nspawn is not None:
            self._nspawn.kill()
        self._ended(BOOT_DEADLINE_SECONDS)

    def remove(self) -> None:
        try:
            if self._nspawn is not None:
                self.power_cut()
        finally:
            if self._images is not None:
                self._images.remove()
            self._layers.remove()

    def _ended(self, deadline_seconds: float) -> None:
        assert self._nspawn is not None
        try:
            self._nspawn.wait(deadline_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end:\n{self._last_words()}") from None
        self._nspawn, self.leader = None, 0
        if self._bridge is not None:
            self._bridge.take_off(self.name)
        remove_groups(self._groups)

    def _wait_until_up(self) -> None:
        def is_up() -> bool:
            assert self._nspawn is not None
            assert self._nspawn.poll() is None, f"{self.name} did not boot:\n{self.console}"
            self.leader = self._find_leader()
            return bool(self.leader) and self.run("systemctl", "is-system-running", check=False).output.strip() in (
                *("running", "degraded"),
            )

        self.wait_for(is_up, "the boot", self.boot_deadline_seconds)
        self._open_limits()

    def _join_network(self) -> None:
        """nspawn calls a device's end of its cable host0."""
        settings = f"[Match]\nName=host0\n[Network]\nAddress={self.address}/24\nLinkLocalAddressing=no\n"
        self.write("/etc/systemd/network/10-lab.network", settings)
        self.write("/etc/hosts", f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        check_output(["chroot", str(self.root), "systemctl", "--quiet", "enable", "systemd-networkd.service"])

    def _find_leader(self) -> int:
        """The device's first process once it is systemd; 0 before."""
        assert self._nspawn is not None
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        for child in map(int, children):
            with suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    return child
        return 0

    def _open_limits(self) -> None:
        """nspawn leaves controllers of version 1 read-only: limits would be accepted and not hold."""
        opened = False
        for name in LIMITING:
            if (self.root / "sys").exists() and self.run("test", "-d", f"/sys/fs/cgroup/{name}", check=False).code == 0:
                folder = f"/sys/fs/cgroup/{name}"
                # Not into the cgroup namespace: the mount is that of the namespace outside.
                remounted = subprocess.run(
                    [*("nsenter", "-t", str(self.leader), "-m", "-C"), *("mount", "-o", "remount,rw,bind", folder)],
                    capture_output=True,
                    check=False,
                )
                opened |= remounted.returncode == 0
        if opened:
            self.run("systemctl", "daemon-reexec")

    # What goes on in it

    def run(
        self,
        *command: str,
        check: bool = True,
        stdin: str | None = None,
        deadline_seconds: float = COMMAND_DEADLINE_SECONDS,
    ) -> Outcome:
        """Run a command in it as its administrator."""
        completed = subprocess.run(
            [*self.enter(), *command],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=deadline_seconds,
            check=False,
        )
        if check:
            assert completed.returncode == 0, f"{self.name}: {' '.join(command)}:\n{completed.stdout}"
        return Outcome(completed.returncode, completed.stdout)

    def enter(self) -> list[str]:
        """What to put before a command so that it runs in the device."""
        settings = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        namespaces = ("-m", "-u", "-i", "-n", "-p", "-C")
        return ["nsenter", "-t", str(self.leader), *namespaces, "--wd", "--", "env", "-i", *settings]

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file of root's, with the folders that it needs."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def read(self, path: str) -> str:
        return self.run("cat", path).output

    def unit(self, name: str, *properties: str) -> dict[str, str]:
        """Properties of a unit as systemctl shows them."""
        shown = self.run("systemctl", "show", name, *(f"--property={each}" for each in properties)).output
        return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)

    def journal(self, unit: str = "", *options: str) -> str:
        chosen = [f"--unit={unit}"] if unit else []
        return self.run("journalctl", "--no-pager", "--output=cat", *chosen, *options, check=False).output

    @property
    def console(self) -> str:
        return self._console.read_text(errors="replace")

    def wait_for(
        self, condition: Callable[[], object], what: str, deadline_seconds: float = STATE_DEADLINE_SECONDS
    ) -> None:
        deadline = time.monotonic() + deadline_seconds
        while not condition():
            assert time.monotonic() < deadline, f"{self.name}: {what} did not come:\n{self._last_words()}"
            time.sleep(POLL_SECONDS)

    def _last_words(self) -> str:
        journal = self.journal("", "--lines=80", "--output=short-monotonic") if self.leader else ""
        return f"{self.console[-2000:]}\n{journal}"


def _stop_all_of(leader: int) -> set[int]:
    """Every process of a device but its first, also those that are begun meanwhile. Those that came in from here go
    first: they would see the others stand still, and act on it. Returns those through which they came in."""
    stopped: set[int] = set()
    entrances: set[int] = set()
    while found := (_that_came_in(leader) - stopped) or (_descendants(leader) - stopped):
        entrances |= {_parent(pid) for pid in found}
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= found
    return {pid for pid in entrances if _name(pid) == "nsenter"}


def _that_came_in(leader: int) -> set[int]:
    """What `Device.enter` was put before, and all that it started."""
    with suppress(OSError):
        namespace = os.readlink(f"/proc/{leader}/ns/pid")
        inside = {int(file.parts[2]) for file in Path("/proc").glob("[0-9]*/ns/pid") if _leads_to(file, namespace)}
        return {pid for each in inside - _descendants(leader) - {leader} for pid in (each, *_descendants(each))}
    return set()


def _let_end(entrances: set[int]) -> None:
    """nsenter stands still when what it started does, and does not see that it has ended meanwhile. Before that end it
    would have it go on."""
    deadline = time.monotonic() + STATE_DEADLINE_SECONDS
    while standing := {pid for pid in entrances if not _has_ended(pid)}:
        assert time.monotonic() < deadline, f"{standing} did not end with the device"
        for pid in standing:
            if all(map(_has_ended, _descendants(pid))):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        time.sleep(POLL_SECONDS)


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _has_ended(pid: int) -> bool:
    return (_status(pid) or ["X"])[0] in "ZX"


def _parent(pid: int) -> int:
    return int((_status(pid) or ["", "0"])[1])


def _status(pid: int) -> list[str]:
    """State, parent and so on; a name may have spaces."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _leads_to(link: Path, target: str) -> bool:
    with suppress(OSError):
        return os.readlink(link) == target
    return False


def _descendants(pid: int) -> set[int]:
    """A process belongs to the thread that began it."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with suppress(OSError):
                children = {*map(int, task.read_text().split())} - found
                found |= children
                waiting += children
    return found
