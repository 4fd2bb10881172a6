"""Replica: keeps one worker lane of a model alive, by replacing a worker that was lost, within a stated budget."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from edgellm.engines.lease import Lease, hold_bundle
from edgellm.errors import EdgeLLMError, WorkerFailedError
from edgellm.runtime.llm_options import DEFAULT_READ_ONLY_ENGINE_DIRS
from edgellm.runtime.process_memory import proportional_memory_bytes
from edgellm.serving.error_frames import error_frames
from edgellm.serving.model_spec import LaneObserver, LoadProgress, ReportProgress
from edgellm.serving.warm_up import produce_a_token
from edgellm.serving.worker.lane import WorkerLane
from edgellm.serving.worker.messages import Loading
from edgellm.serving.worker.process import WorkerProcess
from edgellm.serving.worker.settings import WorkerSettings, WorkerSpec

_log = logging.getLogger(__name__)

Pause = Callable[[float], Awaitable[None]]


def _is_read_only(bundle_dir: Path, spec: WorkerSpec) -> bool:
    roots = spec.arguments.get("read_only_engine_dirs", DEFAULT_READ_ONLY_ENGINE_DIRS)
    return bundle_dir.parent in [Path(root).expanduser() for root in roots]


class Replica:
    """One replica of a model. ``open()`` once, then ``watch()`` once, ``close()`` at any time."""

    def __init__(
        self, spec: WorkerSpec, settings: WorkerSettings, report: ReportProgress, pause: Pause = asyncio.sleep
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._report = report
        self._pause = pause
        self._lane: WorkerLane | None = None
        self._lease: Lease | None = None
        self._restarts: deque[float] = deque()
        self._replacing: asyncio.Task[None] | None = None
        self._closed = False
        self.restarts_total = 0

    @property
    def lane(self) -> WorkerLane | None:
        return self._lane

    async def open(self) -> WorkerLane:
        """Start the worker. Raises the error that its model could not be loaded with."""
        process = WorkerProcess(self._spec, self._settings, self._show)
        ready = await process.start()
        try:
            lane = await WorkerLane.over(process, ready, self._settings.cancel_grace_seconds)
            # Held here too: between a worker that was lost and the one after it the engine must not be evicted.
            is_read_only = _is_read_only(lane.bundle_dir, self._spec)
            lease = await asyncio.to_thread(hold_bundle, lane.bundle_dir, read_only=is_read_only)
        except BaseException:
            await process.kill()
            raise
        if self._lease is not None:
            self._lease.close()
        self._lane, self._lease = lane, lease
        if process.spec.log_level != self._spec.log_level:  # it changed meanwhile
            process.log_at(self._spec.log_level)
        return lane

    async def open_first(self) -> WorkerLane:
        """As ``open``; a worker that is lost while it loads, as when memory was short, gets a second try."""
        try:
            return await self.open()
        except WorkerFailedError as error:
            if not self._may_restart():
                raise
            _log.warning("worker of %s: %s; it is started once more", self._spec.name, error)
        self._restarts.append(time.monotonic())
        self.restarts_total += 1
        self._report(LoadProgress("restarting"))
        return await self.open()

    def watch(self, observer: LaneObserver) -> None:
        """Replace the worker whenever it is lost, and tell the observer."""
        if self._lane is not None:
            self._watch_lane(self._lane, observer)

    async def close(self) -> bool:
        """Whether its worker had to be killed. Idempotent."""
        self._closed = True
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.gather(self._replacing, return_exceptions=True)
        if self._lane is not None:
            await self._lane.process.close()
        if self._lease is not None:
            self._lease.close()
        return self._lane is not None and self._lane.process.was_killed

    def log_at(self, level: str) -> None:
        """The least severe level that its worker logs, and every one after it."""
        self._spec = replace(self._spec, log_level=level)
        if self._lane is not None:
            self._lane.process.log_at(level)

    def memory_bytes(self) -> int:
        """What its worker takes now; 0 while there is none."""
        return 0 if self._lane is None else proportional_memory_bytes(self._lane.process.pid)

    def _watch_lane(self, lane: WorkerLane, observer: LaneObserver) -> None:
        def lost() -> None:
            if self._closed:
                return
            # At once: until the lane is taken out, freed places of it would be given to those who wait.
            will_retry = self._may_restart()
            observer.lane_lost(lane, is_coming_back=will_retry)
            if will_retry:
                self._replacing = asyncio.get_running_loop().create_task(self._replace(observer))
            else:
                self._log_given_up()

        lane.process.when_lost(lost)

    async def _replace(self, observer: LaneObserver) -> None:
        while self._may_restart():
            delay_seconds = self._delay_seconds()
            self._restarts.append(time.monotonic())
            self.restarts_total += 1
            if delay_seconds:
                self._report(LoadProgress(f"restarting in {delay_seconds:g} s"))
                await self._pause(delay_seconds)
            self._report(LoadProgress("restarting"))
            if self._lane is not None:
                await self._lane.process.exited()
            try:
                lane = await self.open()
                try:
                    await produce_a_token(lane)
                except BaseException:
                    await lane.process.kill()
                    raise
            except EdgeLLMError as error:
                _log.error("worker of %s did not come back: %s", self._spec.name, error)
                continue
            except Exception as error:  # whatever it is, the next attempt or the budget decides
                _log.error("worker of %s did not come back: %s", self._spec.name, error_frames(error))
                continue
            _log.warning("worker of %s is back (pid %d)", self._spec.name, lane.process.pid)
            observer.lane_back(lane)
            self._watch_lane(lane, observer)
            return
        self._log_given_up()
        observer.lane_given_up()

    def _log_given_up(self) -> None:
        _log.error("worker of %s: given up after %d restarts", self._spec.name, len(self._restarts))

    def _may_restart(self) -> bool:
        since = time.monotonic() - self._settings.restart_window_seconds
        while self._restarts and self._restarts[0] < since:
            self._restarts.popleft()
        return len(self._restarts) < self._settings.restarts_max

    def _delay_seconds(self) -> float:
        """No time for the first restart in a while, then twice as long each time."""
        if not self._restarts:
            return 0.0
        delay: float = self._settings.restart_delay_seconds * 2 ** (len(self._restarts) - 1)
        return min(delay, self._settings.restart_delay_max_seconds)

    def _show(self, loading: Loading) -> None:
        self._report(LoadProgress(loading.stage, loading.fraction))
