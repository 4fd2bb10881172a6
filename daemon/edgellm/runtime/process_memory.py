"""Memory of this process that was freed and is held by the C library's allocator.

Tokenising takes hundreds of bytes for each token. glibc keeps what was freed of that in the arena of the thread that
ran: after a prompt of a few megabytes, over a gigabyte that no other thread uses.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

# Arenas for all threads together; glibc's own limit is eight for each CPU.
MALLOC_ARENAS_MAX = 4

_M_ARENA_MAX = -8  # in glibc's malloc.h


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
