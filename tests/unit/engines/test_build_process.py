from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgellm.engines import build_process
from edgellm.engines.build_process import MemoryLimits, log_tail, run_build_process
from edgellm.errors import BuildFailedError, InsufficientMemoryError

DEADLINE_SECONDS = 120


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run(code: str, log: Path, **options: object) -> tuple[int, list[str]]:
    lines: list[str] = []
    status = run_build_process(python(code), log=log, on_line=lines.append, **options)  # type: ignore[arg-type]
    return status, lines


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "build.log"


def test_lines_status_input_and_log(log: Path) -> None:
    code = "import sys; print(sys.stdin.read()); print('ü'); print('why', file=sys.stderr); sys.exit(3)"
    assert run(code, log, stdin=b"job") == (3, ["job", "ü"])
    assert log.read_text() == "why\n"
    assert log_tail(log) == "why"
    assert log_tail(log.with_name("absent")) == ""


def test_a_signal_is_a_negative_status(log: Path) -> None:
    assert run("import os; os.kill(os.getpid(), 9)", log)[0] == -signal.SIGKILL


def test_the_builder_gives_way_and_is_the_first_to_go_when_memory_runs_out(log: Path) -> None:
    code = "import os; print(os.nice(0)); print(open('/proc/self/oom_score_adj').read())"
    _, (niceness, score, *_) = run(code, log)
    lowest_priority = 19
    assert int(niceness) == min(lowest_priority, os.nice(0) + build_process.NICENESS)
    assert score == "1000"


def test_the_environment_can_be_chosen(log: Path) -> None:
    assert run("import os; print(os.environ.get('A'), 'HOME' in os.environ)", log, environment={"A": "b"})[1] == [
        "b False"
    ]


def test_locks_are_inherited_and_nothing_else(log: Path, tmp_path: Path) -> None:
    lock, other = (os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("lock", "other"))
    code = f"import os; os.fstat({lock}); print('held')\ntry: os.fstat({other})\nexcept OSError: print('closed')"
    assert run(code, log, locks=[lock]) == (0, ["held", "closed"])
    os.close(lock)
    os.close(other)


def test_an_exception_of_the_watcher_ends_everything_that_was_started(log: Path) -> None:
    pids: list[int] = []

    def fail(line: str) -> None:
        pids.extend(int(pid) for pid in line.split())
        raise KeyboardInterrupt

    code = (
        "import os, subprocess, sys, time; child = subprocess.Popen(['/bin/sleep', '1000']);"
        "print(os.getpid(), child.pid, flush=True); time.sleep(1000)"
    )
    with pytest.raises(KeyboardInterrupt):
        run_build_process(python(code), log=log, on_line=fail)
    assert len(pids) == 2
    for pid in pids:
        wait_until_gone(pid)


def test_too_little_memory_on_the_machine_ends_the_build_with_numbers(log: Path) -> None:
    limits = MemoryLimits(floor_bytes=1 << 60)
    with pytest.raises(InsufficientMemoryError, match=r"\d+ MiB of memory were left, \d+ MiB must stay"):
        run("import time; time.sleep(1000)", log, limits=limits)


def test_a_builder_over_its_ceiling_is_ended_with_what_it_started(log: Path) -> None:
    limits = MemoryLimits(ceiling_bytes=150 << 20)
    code = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c',"
        " 'import time; block = bytearray(200 << 20); time.sleep(1000)'])"
    )
    with pytest.raises(InsufficientMemoryError, match=r"it holds \d+ MiB of memory, 150 MiB are allowed"):
        run(code, log, limits=limits)


def test_a_log_is_bounded(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_process, "MAX_LOG_BYTES", 1000)
    assert run("import sys; sys.stderr.write('x' * 1_000_000)", log)[0] == 0
    assert log.stat().st_size == 1000


def test_a_program_that_is_not_there_is_told(log: Path) -> None:
    assert run_build_process(["/nonexistent/builder"], log=log, on_line=print) != 0
    assert "/nonexistent/builder" in log.read_text()


def test_a_launcher_that_cannot_start_is_our_error(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_process.sys, "executable", "/nonexistent/python")
    with pytest.raises(BuildFailedError, match="the builder cannot be started"):
        run("pass", log)


def test_a_dead_parent_takes_the_builder_along(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from edgellm.engines.build_process import run_build_process as run\n"
        "command = [sys.executable, '-c', 'import os, time; print(os.getpid(), flush=True); time.sleep(1000)']\n"
        f"run(command, log=Path({str(tmp_path / 'log')!r}), on_line=lambda line: print(line, flush=True))"
    )
    parent = subprocess.Popen(python(code), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    builder = int(parent.stdout.readline())
    assert is_running(builder)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone(builder)
