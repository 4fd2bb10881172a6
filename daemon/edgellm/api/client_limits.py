"""ClientLimits: how much one client may ask of the server, by the minute and at the same time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from edgellm.api import limits
from edgellm.errors import RateLimitedError
from edgellm.serving.service_times import ServiceTimes

SECONDS_PER_MINUTE = 60.0


class ClientLimits:
    """None is no limit. A client that was quiet for a minute may send a minute's requests at once.

    A client is the name of its key, or its address where there are no keys.
    """

    def __init__(
        self,
        requests_per_minute: int | None,
        concurrent_requests: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.change(requests_per_minute, concurrent_requests)
        self._clock = clock
        # When a client's allowance is whole again: the further ahead, the less it has left (GCRA).
        self._whole_again_seconds: OrderedDict[str, float] = OrderedDict()
        self._running: dict[str, list[float]] = {}  # when each began
        self._service_times = ServiceTimes()

    def change(self, requests_per_minute: int | None, concurrent_requests: int | None) -> None:
        """Hold what comes from now on to other limits; what was sent before counts."""
        self._requests_per_minute = requests_per_minute
        self._concurrent_requests = concurrent_requests

    @contextmanager
    def request(self, client: str) -> Iterator[None]:
        """One request of ``client`` from here to its end. Raises RateLimitedError."""
        began = self._clock()
        running = self._running.get(client, [])
        if self._concurrent_requests is not None and len(running) >= self._concurrent_requests:
            wait_seconds = self._service_times.until_next_end_seconds([began - one for one in running])
            raise RateLimitedError(
                f"This client may have {self._concurrent_requests} requests at the same time.",
                retry_after_seconds=wait_seconds,
            )
        if self._requests_per_minute is not None:
            self._spend(client, self._requests_per_minute, began)
        self._running.setdefault(client, []).append(began)
        try:
            yield
        finally:
            self._service_times.ended(self._clock() - began)
            self._running[client].remove(began)
            if not self._running[client]:
                del self._running[client]

    def _spend(self, client: str, requests_per_minute: int, now: float) -> None:
        interval_seconds = SECONDS_PER_MINUTE / requests_per_minute
        whole_again = max(self._whole_again_seconds.get(client, now), now) + interval_seconds
        wait_seconds = whole_again - now - SECONDS_PER_MINUTE
        if wait_seconds > interval_seconds * 1e-9:
            raise RateLimitedError(
                f"This client may send {requests_per_minute} requests a minute.", retry_after_seconds=wait_seconds
            )
        self._whole_again_seconds[client] = whole_again
        self._whole_again_seconds.move_to_end(client)
        while len(self._whole_again_seconds) > limits.CLIENTS_REMEMBERED_MAX:
            self._whole_again_seconds.popitem(last=False)
