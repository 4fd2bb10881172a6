"""FirstBootState: which steps of a board's first boot were begun and done, written before and after each."""

from __future__ import annotations

import json
import time
from enum import Enum
from pathlib import Path
from typing import Any

from edgellm.durable_file import make_private_folder, write_durably, write_json_durably
from edgellm.errors import ConfigError

FORMAT = 1
FILE_NAME = "first-boot.json"
DONE_MARK = "first-boot.done"  # a condition of the unit


class BootStep(Enum):
    """In the order in which they are taken."""

    IDENTITY = "identity"
    FILE_SYSTEM = "file_system"
    HOSTNAME = "hostname"
    ACCOUNTS = "accounts"
    RELEASE = "release"
    AUTHORITY = "authority"
    DEVICE_KEY = "device_key"
    BUNDLES = "bundles"
    SERVICE = "service"


class FirstBootState:
    """Below ``/var/lib/edgellm-host``. A step that was begun and not done is taken again, and knows that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._steps: dict[str, dict[str, Any]] = self._read()

    @property
    def is_over(self) -> bool:
        return (self._folder / DONE_MARK).exists()

    def is_done(self, step: BootStep) -> bool:
        return self._steps.get(step.value, {}).get("state") == "done"

    def was_begun(self, step: BootStep) -> bool:
        return step.value in self._steps

    def begin(self, step: BootStep) -> None:
        self._steps[step.value] = {"state": "begun", "unix_seconds": round(time.time(), 3)}
        self._write()

    def finish(self, step: BootStep, note: str, seconds: float) -> None:
        self._steps[step.value] = {
            "state": "done",
            "unix_seconds": round(time.time(), 3),
            "seconds": round(seconds, 3),
            "note": note,
        }
        self._write()

    def finish_all(self) -> None:
        write_durably(self._folder / DONE_MARK, b"", 0o644)

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "is_over": self.is_over, "steps": self._steps}

    def _write(self) -> None:
        make_private_folder(self._folder)
        write_json_durably(self._path, {"format": FORMAT, "steps": self._steps})

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            steps = json.loads(self._path.read_bytes())["steps"]
            return {str(name): dict(step) for name, step in steps.items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror} — run as root") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(f"{self._path} is damaged — remove it: every step finds what is done already") from None
