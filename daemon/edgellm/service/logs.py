"""Log output of the daemon: one line an event on standard error, for people or as JSON, never with request text."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
from typing import Any

from edgellm.config import LogSettings

_SYSLOG_LEVEL = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}

ERROR_PREFIX = f"<{_SYSLOG_LEVEL[logging.ERROR]}>"  # what the journal takes a line's level from


class TextFormatter(logging.Formatter):
    """``time level logger: message``; under systemd the level goes into the journal's prefix instead of the text."""

    def __init__(self, *, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        message = _one_line(record.getMessage())
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        if self._journal:
            prefix = f"<{_SYSLOG_LEVEL.get(record.levelno, 6)}>"
            return "\n".join(f"{prefix}{line}" for line in f"{record.name}: {message}".splitlines())
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{stamp} {record.levelname.lower():7} {record.name}: {message}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure(settings: LogSettings, *, journal: bool = False) -> None:
    """Route every logger to standard error. Repeatable."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter(journal=journal))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    logging.captureWarnings(True)
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # What it says at info (started, waiting, finished) is said by the daemon in its own words.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))


def set_level(level: str) -> None:
    """Another least severe level, from now on."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))


def goes_to_journal() -> bool:
    """Whether standard error is the journal itself: it then stamps lines and takes their level from a prefix."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class LogLines(io.TextIOBase):
    """A stream for what is said to people: here each line of it is a log line at info."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.strip():
                self._logger.info("%s", line.strip())
        return len(text)


def _one_line(text: str) -> str:
    """Control characters escaped, so that no message can forge another line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
