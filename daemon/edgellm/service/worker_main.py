"""Entry point of a worker process, started by the daemon as ``python -m edgellm.service.worker_main FD``."""

from __future__ import annotations

import sys

from edgellm.config import LogSettings
from edgellm.runtime.process_memory import limit_malloc_arenas
from edgellm.service import logs
from edgellm.serving.worker.main import run_worker
from edgellm.serving.worker.messages import Hello

EXIT_USAGE = 64


def _configure_logs(hello: Hello) -> None:
    settings = LogSettings.model_validate({"level": hello.log_level, "format": hello.log_format})
    logs.configure(settings, journal=hello.log_to_journal)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.stderr.write("edgellm: a worker is started by edgellm serve, not by hand\n")
        sys.exit(EXIT_USAGE)
    limit_malloc_arenas()
    run_worker(int(sys.argv[1]), _configure_logs)
