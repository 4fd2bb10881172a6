"""A worker that logs each pong at info and at error: ``python -m tests.workers.talkative_worker FD``."""

from __future__ import annotations

import logging
import sys

from edgellm.service import worker_main
from edgellm.serving.worker.main import Worker, run_worker
from edgellm.serving.worker.messages import Pong

_log = logging.getLogger("talkative")
_pong = Worker._pong


def _said_pong(worker: Worker, number: int) -> Pong:
    _log.info("pong said")
    _log.error("pong complained")
    return _pong(worker, number)


if __name__ == "__main__":
    Worker._pong = _said_pong  # type: ignore[method-assign]
    run_worker(int(sys.argv[1]), worker_main._configure_logs)
