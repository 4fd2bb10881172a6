"""Makes room for as many open files as the connections that the daemon takes."""

from __future__ import annotations

import logging
import resource

OTHER_FILES = 512  # models, libraries, workers, files that requests read

_log = logging.getLogger(__name__)


def raise_open_files_limit(connections_max: int) -> None:
    """Raise this process's soft limit as far as it is needed and allowed; says when that is not far enough."""
    wanted = connections_max + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if reachable > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    if reachable < wanted:
        _log.warning(
            "this process may open %d files, fewer than server.connections_max %d needs (%d)",
            reachable,
            connections_max,
            wanted,
        )
