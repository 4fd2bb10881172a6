"""The parent's side of the opening worker: asks, notices a death or a hang, and goes on with a fresh process."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[3]
# Loading a tiny model takes milliseconds, starting the process about a second.
ANSWER_DEADLINE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """``died`` is the exit status of a worker that ended or "hung"; else it opened the model or refused it."""

    opened: bool
    kinds: tuple[str, ...] = ()
    message: str = ""
    died: str = ""


class Opener:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - lives as long as the opener

    def _worker(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.native.fuzz.open_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                cwd=ROOT,
            )
        return self._process

    def open_bundle(self, directory: Path) -> Outcome:
        return self._ask({"kind": "bundle", "path": str(directory)})

    def open_vision(self, directory: Path) -> Outcome:
        return self._ask({"kind": "vision", "path": str(directory)})

    def open_source(self, model: Path, cache_dir: Path) -> Outcome:
        return self._ask({"kind": "source", "path": str(model), "cache_dir": str(cache_dir)})

    def _ask(self, request: dict[str, str]) -> Outcome:
        worker = self._worker()
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(request) + "\n")
        worker.stdin.flush()
        readable, _, _ = select.select([worker.stdout], [], [], ANSWER_DEADLINE_SECONDS)
        line = worker.stdout.readline() if readable else ""
        if not line:
            died = "hung" if not readable else f"exit status {worker.wait()}"
            self._discard()
            self._errors.seek(0)
            return Outcome(opened=False, died=died, message=self._errors.read()[-2000:])
        answer = json.loads(line)
        return Outcome(opened=answer["opened"], kinds=tuple(answer["kinds"]), message=answer["message"])

    def _discard(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()
        self._errors.close()
