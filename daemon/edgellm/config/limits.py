"""Bounds of settings, each named once; what a request may ask has its own bounds where requests are parsed."""

from __future__ import annotations

PORT_MAX = 65_535
QUEUED_REQUESTS_MAX = 4_096
BATCH_SEQUENCES_MAX = 256
THREADS_MAX = 1_024
TOKENS_MAX = 2**24
CONTEXT_RECORDS_MAX = 65_536
REQUEST_BODY_BYTES_MIN = 1_024
REQUEST_BODY_BYTES_MAX = 2**30
CONNECTIONS_MAX = 65_536
REQUESTS_PER_MINUTE_MAX = 1_000_000
DURATION_SECONDS_MAX = 7 * 24 * 3_600.0
ENGINE_CACHE_GB_MAX = 2.0**20
MODELS_MAX = 32
MODEL_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$"
