"""HttpCounters: what the HTTP interface answered and which fields clients sent in vain."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, Counter


class HttpCounters:
    """Labels are paths of the route table and field names this server knows, so that clients cannot make new series."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._responses = Counter(
            "edgellm_http_responses", "Answers, by route and status.", ("route", "status"), registry=self.registry
        )
        self._unknown = Counter(
            "edgellm_unknown_fields", "Unknown request fields.", ("action",), registry=self.registry
        )
        self._unsupported = Counter(
            "edgellm_unsupported_fields", "Fields refused as unsupported.", ("field",), registry=self.registry
        )

    def answered(self, route: str, status: int) -> None:
        """``status`` 0 is a client that left before it was answered."""
        self._responses.labels(route or "none", str(status) if status else "disconnected").inc()

    def unknown_field(self, action: str) -> None:
        self._unknown.labels(action).inc()

    def unsupported_field(self, path: str) -> None:
        """Counts the field at the top of the path: its name is one that this server knows."""
        self._unsupported.labels(re.split(r"[.\[]", path, maxsplit=1)[0]).inc()
