"""Replicas: all workers of one model, opened together, watched and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from edgellm.serving.model_spec import LaneObserver, OpenedModel, ReportProgress
from edgellm.serving.opened_llm import read_generation_config
from edgellm.serving.worker.replica import Replica
from edgellm.serving.worker.settings import WorkerSettings, WorkerSpec


class Replicas:
    """One model's workers. The first one is started alone: it may have to build what the others then find."""

    def __init__(self, specs: Sequence[WorkerSpec], settings: WorkerSettings, report: ReportProgress) -> None:
        self._replicas = [Replica(spec, settings, report) for spec in specs]

    async def open(self) -> OpenedModel:
        """Return once every worker is ready. If one cannot load its model, none is left behind."""
        first, *others = self._replicas
        try:
            lanes = [await first.open_first()]
            lanes += await asyncio.gather(*(replica.open_first() for replica in others))
        except BaseException:
            await self.close()
            raise
        return OpenedModel(
            lanes,
            await asyncio.to_thread(read_generation_config, lanes[0].bundle_dir),
            watch=self._watch,
            close=self.close,
            memory_bytes=self._memory_bytes,
            log_at=self._log_at,
        )

    async def close(self) -> int:
        """How many workers had to be killed. Idempotent."""
        return sum(await asyncio.gather(*(replica.close() for replica in self._replicas)))

    def _memory_bytes(self) -> int | None:
        """None where the system does not say."""
        return sum(replica.memory_bytes() for replica in self._replicas) or None

    def _log_at(self, level: str) -> None:
        for replica in self._replicas:
            replica.log_at(level)

    def _watch(self, observer: LaneObserver) -> None:
        for replica in self._replicas:
            replica.watch(observer)
