"""MemoryWatch: ends the worker that takes the machine's memory, before the kernel has to choose somebody.

Each worker looks at the whole machine once in a while. When too little is left, the one that grew most since its model
was loaded is ended; who did not grow is not to blame. One at a time: only what it gives back shows whether another must
follow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from edgellm.engines.resources.available_memory import MemoryReader, available_memory_bytes
from edgellm.runtime.process_memory import ResidentMemory, resident_memory

BYTES_PER_MIB = 2**20
GROWTH_TO_BLAME_BYTES = 64 * BYTES_PER_MIB  # less is the ordinary ups and downs of a process
GPU_RUNTIME = "tensorrt"  # what it takes is missed by the machine and is in no process's resident set

_log = logging.getLogger(__name__)


class Watched(Protocol):
    """A worker process."""

    @property
    def pid(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def has_exited(self) -> bool: ...

    def end_for_memory(self, reason: str) -> None:
        """``reason`` continues a sentence about it in the log."""
        ...


@dataclass(slots=True)
class _Baseline:
    """What a worker held, and what the machine had left, when its model was loaded; nothing before that."""

    held_bytes: int = 0
    available_bytes: int | None = None
    runtime: str = ""


class MemoryWatch:
    """Used from one event loop."""

    def __init__(
        self,
        available: MemoryReader = available_memory_bytes,
        resident: Callable[[int], ResidentMemory | None] = resident_memory,
    ) -> None:
        self._available = available
        self._resident = resident
        self._workers: dict[Watched, _Baseline] = {}
        self._ending: Watched | None = None
        self._has_warned = False

    def add(self, worker: Watched) -> None:
        """It is about to load its model: all that it takes counts until ``loaded``."""
        self._workers[worker] = _Baseline()

    def loaded(self, worker: Watched, runtime: str) -> None:
        if worker in self._workers:
            self._workers[worker] = _Baseline(self._held_bytes(worker), self._available(), runtime)

    def remove(self, worker: Watched) -> None:
        self._workers.pop(worker, None)

    def check(self, worker: Watched, *, worker_bytes_max: int | None, available_bytes_min: int) -> None:
        """``worker`` against its own limit, and then all of them against what the machine has left."""
        held_bytes = self._held_bytes(worker)
        if worker_bytes_max is not None and held_bytes > worker_bytes_max:
            self._end(
                worker, f"holds {_mib(held_bytes)}, more than workers.memory_max_mib allows ({_mib(worker_bytes_max)})"
            )
            return
        if self._ending is not None and not self._ending.has_exited:
            return
        self._ending = None
        available_bytes = self._available()
        if available_bytes is None or available_bytes >= available_bytes_min:
            self._has_warned = False
            return
        grown = {each: self._growth_bytes(each, available_bytes) for each in self._workers}
        most = max(grown, key=grown.__getitem__, default=None)
        if most is not None and grown[most] >= GROWTH_TO_BLAME_BYTES:
            self._end(
                most,
                f"grew by {_mib(grown[most])} and left this machine {_mib(available_bytes)}, less than "
                f"workers.available_memory_min_mib ({_mib(available_bytes_min)})",
            )
        elif not self._has_warned:
            self._has_warned = True
            _log.warning("%s of memory are left on this machine, and no worker is to blame", _mib(available_bytes))

    def _end(self, worker: Watched, reason: str) -> None:
        self._ending = worker
        self.remove(worker)
        worker.end_for_memory(reason)

    def _held_bytes(self, worker: Watched) -> int:
        memory = self._resident(worker.pid)
        return 0 if memory is None else memory.unreclaimable_bytes

    def _growth_bytes(self, worker: Watched, available_bytes: int) -> int:
        baseline = self._workers[worker]
        grown_bytes = self._held_bytes(worker) - baseline.held_bytes
        if baseline.runtime == GPU_RUNTIME and baseline.available_bytes is not None:
            return max(grown_bytes, baseline.available_bytes - available_bytes)
        return grown_bytes


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / BYTES_PER_MIB:.0f} MiB"


MACHINE_MEMORY = MemoryWatch()
"""Of all workers of this process: the machine has one memory."""
