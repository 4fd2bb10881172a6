"""A process that prepares an engine and tells what happens, one JSON object a line, and dies when it is told to.

``python -m tests.store.store_process SOURCE CACHE [options]``. Lines: ``{"stage": …}`` when one begins,
``{"leased": folder}`` with the bundle held until standard input ends, ``{"error": class, "message": …}``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.builder import BuildRequest
from edgellm.engines.bundle_files import problems_of
from edgellm.engines.native_builder import NativeBuilder
from edgellm.engines.progress import Progress
from edgellm.engines.source import resolve
from edgellm.engines.store import Store
from edgellm.errors import EdgeLLMError


def say(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def builders() -> list[int]:
    """Children of this process, by whichever thread started them."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def kill_builder_when_it_appears() -> None:
    while not (pids := builders()):
        time.sleep(0.001)
    os.kill(pids[0], signal.SIGKILL)


def die_at_rename(count: int) -> None:
    """Die just before the ``count``-th rename of a folder: the moments between two steps of a publication."""
    rename, left = Path.rename, [count]

    def counted(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)

    Path.rename = counted  # type: ignore[method-assign,assignment]


def fill(folder: Path) -> None:
    """Take every byte that is left on the file system of ``folder``."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb") as stream:
        for size_bytes in (1 << 16, 1 << 10, 1):
            with contextlib.suppress(OSError):
                while True:
                    stream.write(bytes(size_bytes))
                    stream.flush()


class Watcher:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._stage = ""

    def __call__(self, progress: Progress) -> None:
        if progress.stage == self._stage:
            return
        self._stage = progress.stage
        say(stage=progress.stage, builders=builders())
        if progress.stage == self._options.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if progress.stage == self._options.kill_builder_at:
            os.kill(builders()[0], signal.SIGKILL)
        if progress.stage == self._options.fill_disk_at:
            fill(Path(self._options.cache))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("cache")
    parser.add_argument("--quantisation", default="auto")
    parser.add_argument("--die-at")
    parser.add_argument("--die-at-rename", type=int)
    parser.add_argument("--kill-builder-at")
    parser.add_argument("--fill-disk-at")
    parser.add_argument("--file-bytes-max", type=int)
    parser.add_argument("--wait", action="store_true", help="begin at a line of standard input")
    parser.add_argument("--loads", type=int, default=0, help="lease, check every byte and let go, so many times")
    parser.add_argument("--prune-until-end", action="store_true", help="evict everything until standard input ends")
    options = parser.parse_args()
    if options.file_bytes_max:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_bytes_max, options.file_bytes_max))
    if options.die_at_rename:
        die_at_rename(options.die_at_rename)
    if options.kill_builder_at == "start":
        threading.Thread(target=kill_builder_when_it_appears, daemon=True).start()
    store = Store(Path(options.cache) / "engines", ())
    if options.prune_until_end:
        prune_until_end(store)
        return
    source = resolve(options.source, Path(options.cache) / "models", download=False)
    request = BuildRequest(source, BuildProfile(quantisation=options.quantisation))
    if options.wait:
        say(waiting=True)
        sys.stdin.readline()
    try:
        for _ in range(options.loads):
            with store.prepare(NativeBuilder(), request) as lease:
                problems = list(problems_of(lease.directory, lease.manifest))
                if problems:
                    say(problems=problems)
        with store.prepare(NativeBuilder(), request, on_progress=Watcher(options)) as lease:
            say(leased=str(lease.directory), descriptor=lease.fileno())
            sys.stdin.read()
    except EdgeLLMError as error:
        say(error=type(error).__name__, message=str(error))
        if options.fill_disk_at:
            (Path(options.cache) / "filler").unlink(missing_ok=True)


def prune_until_end(store: Store) -> None:
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    removed = 0
    while not ended.wait(0.01):
        removed += len(store.prune(0).removed)
    say(removed=removed)


if __name__ == "__main__":
    main()
