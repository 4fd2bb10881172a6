"""A new Debian system in a folder, with the checkout in an ordinary user's home; commands run inside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SUITE = "bookworm"
USER = "ada"
CHECKOUT = f"/home/{USER}/edgellm"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgellm-tests"
# How this machine reaches its package index is how the new one does, except for folders that exist here only.
PASSED_ON = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
NOT_PASSED_ON = ("PIP_FIND_LINKS", "PIP_CACHE_DIR", "PIP_TARGET", "PIP_PREFIX")


def missing_tools() -> str:
    """What this machine lacks to make a new one, or ""."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [tool for tool in ("debootstrap", "systemd-nspawn") if shutil.which(tool) is None]
    return f"needs {' and '.join(absent)}" if absent else ""


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str


class FreshMachine:
    """Only what a user is told to install is there. The folder is the whole machine; removing it removes it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def make(cls, root: Path, packages: Sequence[str], mirror: str) -> FreshMachine:
        CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
        downloads = CACHE_FOLDER / f"debs-{SUITE}"
        downloads.mkdir(exist_ok=True)
        _check(
            [
                *("debootstrap", "--variant=minbase", f"--include={','.join(packages)}"),
                *(f"--cache-dir={downloads}", SUITE, str(root), mirror),
            ]
        )
        machine = cls(root)
        machine._copy_apt_configuration()
        if CERTIFICATES.exists():
            shutil.copy(CERTIFICATES, root / str(CERTIFICATES).lstrip("/"))
        _check(["chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", USER])
        return machine

    def _copy_apt_configuration(self) -> None:
        for file in Path("/etc/apt/apt.conf.d").iterdir():
            if file.is_file() and "Proxy" in file.read_text(errors="replace"):
                shutil.copy(file, self.root / "etc/apt/apt.conf.d" / file.name)

    def install(self, *packages: str) -> None:
        """As its administrator, with apt."""
        environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        command = "apt-get -qq update && apt-get -qq -y --no-install-recommends install " + " ".join(packages)
        outcome = self._nspawn(
            ["bash", "-c", command], user="root", environ=environ, offline=False, deadline_seconds=900
        )
        assert outcome.code == 0, outcome.output[-3000:]

    def copy_checkout(self, source: Path) -> None:
        """The files that git knows or would add, owned by the user; nothing that was built here."""
        target = self.root / CHECKOUT.lstrip("/")
        target.mkdir()
        listed = subprocess.run(
            ["git", "-C", str(source), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            check=True,
        ).stdout
        for name in filter(None, listed.decode().split("\0")):
            file = source / name
            if file.is_file():
                destination = target / name
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, destination)
        _check(["chroot", str(self.root), "chown", "-R", f"{USER}:{USER}", CHECKOUT])

    def run(self, script: str, *, offline: bool = False, deadline_seconds: float = 1800) -> Outcome:
        """Run a bash script as the user in the checkout. Offline there is only the loopback interface."""
        environ = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(PASSED_ON) and name not in NOT_PASSED_ON
        }
        # The container manager's own notification socket is nothing a user's shell would have.
        command = ["bash", "-c", f"unset NOTIFY_SOCKET; cd {CHECKOUT} && {script}"]
        return self._nspawn(command, user=USER, environ=environ, offline=offline, deadline_seconds=deadline_seconds)

    def _nspawn(
        self, command: Sequence[str], *, user: str, environ: Mapping[str, str], offline: bool, deadline_seconds: float
    ) -> Outcome:
        argv = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", f"--directory={self.root}"]
        argv += [f"--user={user}", *(f"--setenv={name}={value}" for name, value in environ.items())]
        argv += ["--private-network"] if offline else []
        completed = subprocess.run(
            [*argv, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=deadline_seconds,
            check=False,
        )
        return Outcome(completed.returncode, completed.stdout)


def mirror_of_this_machine() -> str:
    """Where this machine's apt takes Debian from."""
    printed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in printed.splitlines():
        uri, codename, component = line.split()
        if codename == SUITE and component == "main":
            return uri
    return ""


def _check(argv: Sequence[str]) -> None:
    completed = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert completed.returncode == 0, f"{argv[0]} failed:\n{completed.stdout[-3000:]}"
