"""StartWithMedia: a request with media on its way into a runtime of this process, decoded and encoded off the loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.loaded_model import LoadedModel
from edgellm.runtime.running import RunningGeneration


class StartWithMedia:
    """``started`` is called once. A caller that is cancelled leaves nothing running behind."""

    def __init__(self, loaded: LoadedModel, request: GenerationRequest) -> None:
        self._start = loaded.start_with_media(request, _nothing)

    async def started(self, threads: Executor) -> RunningGeneration:
        """Return once the runtime accepted it. Raises RequestError with the part that is wrong."""
        starting = asyncio.get_running_loop().run_in_executor(threads, self._start.run)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._start.cancel()
            await asyncio.wait((starting,))
            if starting.exception() is None:
                starting.result().cancel()
            raise


def _nothing() -> None:
    """Serving counts places by what receivers are told."""
