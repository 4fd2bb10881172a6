"""The one log line of a request that failed through no fault of its client."""

from __future__ import annotations

import logging

from edgellm.api.error_mapping import is_failure
from edgellm.serving.error_frames import failure_cause

_log = logging.getLogger(__name__)


def log_failure(request_id: str, error: BaseException) -> None:
    """Write the line where the answer says that the server failed. It never holds prompt or completion text."""
    if is_failure(error):
        _log.error("request %s failed: %s", request_id, failure_cause(error))
