"""A new Debian system in a folder, with the checkout in an ordinary user's home; commands run inside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.rootfs import check_output, make_rootfs

USER = "ada"
CHECKOUT = f"/home/{USER}/edgellm"
# How this machine reaches its package index is how the new one does, except for folders that exist here only.
PASSED_ON = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
NOT_PASSED_ON = ("PIP_FIND_LINKS", "PIP_CACHE_DIR", "PIP_TARGET", "PIP_PREFIX")


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
        make_rootfs(root, packages, mirror)
        # Debian's installer writes it, and nothing of what bootstraps a system in a folder does.
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
        machine = cls(root)
        check_output(["chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", USER])
        return machine

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
            if file.is_symlink() or file.is_file():
                destination = target / name
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, destination, follow_symlinks=False)
        check_output(["chroot", str(self.root), "chown", "-R", f"{USER}:{USER}", CHECKOUT])

    def run(self, script: str, *, offline: bool = False, deadline_seconds: float = 1800) -> Outcome:
        """Run a bash script as the user in the checkout. Offline there is only the loopback interface."""
        environ = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(PASSED_ON) and name not in NOT_PASSED_ON
        }
        # The container manager's own notification socket is nothing a user's shell would have.
        command = ["bash", "-c", f"unset NOTIFY_SOCKET; cd {CHECKOUT} || exit; {script}"]
        return self._nspawn(command, user=USER, environ=environ, offline=offline, deadline_seconds=deadline_seconds)

    def _nspawn(
        self, command: Sequence[str], *, user: str, environ: Mapping[str, str], offline: bool, deadline_seconds: float
    ) -> Outcome:
        argv = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", f"--directory={self.root}"]
        argv += [f"--user={user}", *(f"--setenv={name}={value}" for name, value in environ.items())]
        argv += ["--private-network"] if offline else []
        # A new Debian 12 has its /tmp on the disk; the container manager's would be a tenth of the memory.
        manager_environ = {**os.environ, "SYSTEMD_NSPAWN_TMPFS_TMP": "0"}
        completed = subprocess.run(
            [*argv, *command],
            env=manager_environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=deadline_seconds,
            check=False,
        )
        return Outcome(completed.returncode, completed.stdout)
