"""Starts a builder so that it cannot outlive the process that asked for it: ``build_launcher.py PARENT NICE -- CMD…``.

Run as a file by a bare Python: nothing of edgellm is imported. The program that it becomes is killed by the kernel when
its parent dies, gives way to everything else on the machine, and is the first to go when memory runs out.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
OUT_OF_MEMORY_SCORE = "1000"


def main(arguments: list[str]) -> None:
    parent, niceness, command = int(arguments[0]), int(arguments[1]), arguments[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        try:
            with open("/proc/self/oom_score_adj", "w") as stream:
                stream.write(OUT_OF_MEMORY_SCORE)
        except OSError:
            pass  # a sandbox without it: the kernel's own choice is as good
    # The parent may have died before the kernel was told.
    if os.getppid() != parent:
        sys.exit(1)
    os.nice(niceness)
    try:
        os.execv(command[0], command)  # noqa: S606  # an absolute path and arguments, no shell
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
