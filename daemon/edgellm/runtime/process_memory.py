"""Memory of processes: how much one holds, and how what was freed goes back to the system.

Tokenising takes hundreds of bytes for each token. glibc keeps what was freed of that in the arena of the thread that
ran: after a prompt of a few megabytes, over a gigabyte that no other thread uses.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Arenas for all threads together; glibc's own limit is eight for each CPU.
MALLOC_ARENAS_MAX = 4

_M_ARENA_MAX = -8  # in glibc's malloc.h


@dataclass(frozen=True, slots=True)
class ResidentMemory:
    """``file_bytes`` are pages of mapped files, such as weights: the system can take them back. The rest it cannot."""

    anonymous_bytes: int
    file_bytes: int
    shared_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.anonymous_bytes + self.file_bytes + self.shared_bytes

    @property
    def unreclaimable_bytes(self) -> int:
        return self.anonymous_bytes + self.shared_bytes


def resident_memory(pid: int | str = "self") -> ResidentMemory | None:
    """None for a process that is gone, and where there is no /proc. Memory of a GPU is not in it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    kib = {name: rest.split()[0] for name, _, rest in (line.partition(":") for line in lines) if rest.endswith(" kB")}
    if "RssAnon" not in kib:  # a zombie has no memory
        return None
    return ResidentMemory(*(int(kib[name]) * 1024 for name in ("RssAnon", "RssFile", "RssShmem")))


def proportional_memory_bytes(pid: int) -> int:
    """What is its own, and its share of what it maps together with others. 0 for a process that is gone or shut."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii", "replace").splitlines()
    except OSError:
        return 0
    sizes = (rest.split()[0] for name, _, rest in (line.partition(":") for line in lines) if name == "Pss")
    return 1024 * int(next(sizes, 0))


def limit_malloc_arenas() -> bool:
    """Let threads share arenas, from now on: call it before there are threads. False where there is no glibc."""
    libc = _glibc()
    return libc is not None and libc.mallopt(_M_ARENA_MAX, MALLOC_ARENAS_MAX) == 1


def return_freed_memory() -> bool:
    """Give freed memory back to the system: about half a second for a gigabyte. False where there is no glibc."""
    libc = _glibc()
    if libc is None:
        return False
    libc.malloc_trim(ctypes.c_size_t(0))
    return True


@cache
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
