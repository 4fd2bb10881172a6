"""MediaStart: decodes what a request brought, builds its native request and hands it over, until it is cancelled."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from edgellm.errors import RequestCancelledError
from edgellm.runtime.contract import StreamChannel
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.running import OnReleased, RunningGeneration

if TYPE_CHECKING:
    from edgellm.runtime.loaded_model import LoadedModel


class MediaStart:
    """``run`` is called once, on a thread that may wait; ``cancel`` from any."""

    def __init__(self, loaded: LoadedModel, request: GenerationRequest, on_released: OnReleased) -> None:
        self._loaded = loaded
        self._request = request
        self._on_released = on_released
        self._decoding = loaded.decoder.job(request.media)
        self._changing = threading.Lock()
        self._channel: StreamChannel | None = None
        self._is_cancelled = False

    def run(self) -> RunningGeneration:
        """Return once the runtime accepted it. Raises RequestError, RequestCancelledError or AdmissionError."""
        media = self._decoding.result()
        native_request, channel = self._loaded.builder.build(self._request, media)
        with self._changing:
            if self._is_cancelled:
                raise RequestCancelledError("the request was cancelled")
            self._channel = channel
        return self._loaded.hand_over(self._request, native_request, channel, self._on_released)

    def cancel(self) -> None:
        """Decoding ends at once, and whatever encodes next. Idempotent."""
        self._decoding.cancel()
        with self._changing:
            self._is_cancelled = True
            if self._channel is not None:
                self._channel.cancel()
