"""A worker that reads memory and does nothing else, and the speed of several of them at once.

It searches for a byte that is the last of a block too large for any cache: it is found where it is, so that every byte
before it was read.
"""

from __future__ import annotations

import json
import mmap
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.bench.worker_process import WorkerProcess

SEARCHED_BYTES = 256 << 20
PASSES = 6  # of each reader in one measurement: that they begin a little apart counts little


def searched_block() -> mmap.mmap:
    block = mmap.mmap(-1, SEARCHED_BYTES)
    block.madvise(mmap.MADV_HUGEPAGE)  # as weight panels have, where the file system can
    block.write(bytes(SEARCHED_BYTES - 1) + b"\x01")
    return block


def read_all(block: mmap.mmap) -> None:
    if block.find(b"\x01", 0) != len(block) - 1:
        raise RuntimeError("the search ended early; the memory's speed would be wrong")


class MemoryReaders:
    """So many processes, each with a block of its own. Use as a context."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._readers = [
            self._open.enter_context(WorkerProcess("tests.bench.memory_reader")) for _ in range(self._count)
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def speed(self) -> float:
        """Bytes per second of all together, by the clock."""
        with ThreadPoolExecutor(self._count) as pool:
            times = list(pool.map(lambda reader: reader.ask({"passes": PASSES}), self._readers))
        seconds = max(each["ended"] for each in times) - min(each["began"] for each in times)
        return float(self._count * PASSES * SEARCHED_BYTES / seconds)


def _serve() -> None:
    block = searched_block()
    print(json.dumps({"bytes": len(block)}), flush=True)
    for line in sys.stdin:
        passes = json.loads(line)["passes"]
        began = time.monotonic()
        for _ in range(passes):
            read_all(block)
        print(json.dumps({"began": began, "ended": time.monotonic()}), flush=True)


if __name__ == "__main__":
    _serve()
