"""Reconfiguration: takes the configuration on anew while the daemon serves, whole or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.config import Settings
from edgellm.errors import ConfigError, EdgeLLMError
from edgellm.serving.model_spec import ModelSpec
from edgellm.serving.model_table import ModelChange, ModelLoad

_log = logging.getLogger(__name__)

# Settings that hold from the moment they are read. What is in neither list needs a restart.
LIVE_SETTINGS = frozenset(
    f"server.{name}"
    for name in (
        *("unknown_fields", "request_body_bytes_max", "body_deadline_seconds", "cors_origins", "allowed_hosts"),
        *("requests_per_minute", "concurrent_requests_per_client"),
        *("stored_responses_max", "stored_responses_bytes_max"),
    )
) | {"log.level"}
LIVE_SECTIONS = ("admission", "media", "residency", "records")
# Those of models and workers that are started from then on.
LATER_SECTIONS = ("engines", "workers")

ReadSettings = Callable[[], Settings]
MakeSpecs = Callable[[Settings], Sequence[ModelSpec]]
TakeOn = Callable[[Settings, Sequence[ModelSpec]], Sequence[ModelChange]]


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What changed, a line each, and what is being loaded for it."""

    lines: Sequence[str]
    loads: Sequence[ModelLoad] = ()


class Reconfiguration:
    """``read`` and ``make_specs`` run in a thread, and raise what is wrong; ``take_on`` then changes what serves."""

    def __init__(self, settings: Settings, read: ReadSettings, make_specs: MakeSpecs, take_on: TakeOn) -> None:
        self._settings = settings
        self._read = read
        self._make_specs = make_specs
        self._take_on = take_on
        self._lock = asyncio.Lock()

    async def reload(self) -> Reloaded:
        """No lines when nothing changed. One at a time: who comes second reads after the first.

        Raises an EdgeLLMError that says what is wrong with the new configuration; nothing has changed then.
        """
        async with self._lock:
            try:
                settings = await asyncio.to_thread(self._read)
                changed = changed_keys(self._settings, settings)
                refuse_fixed(self._settings, settings, changed)
                specs = await asyncio.to_thread(self._make_specs, settings)
                changes = self._take_on(settings, specs)
            except EdgeLLMError as error:
                _log.error("the configuration was not taken on, and that of before holds on: %s", error)
                raise
            self._settings = settings
            lines = [_line(key) for key in changed] + [f"model {change.name}: {change.what}" for change in changes]
            for line in lines or ["nothing changed"]:
                _log.info("configuration read anew: %s", line)
            return Reloaded(lines, [change.load for change in changes if change.load is not None])


def changed_keys(old: Settings, new: Settings) -> list[str]:
    """Dotted keys outside ``[[models]]`` whose values differ."""
    before, after = dict(_flat(old.model_dump(exclude={"models"}))), dict(_flat(new.model_dump(exclude={"models"})))
    return [key for key in after if before.get(key) != after[key]]


def refuse_fixed(old: Settings, new: Settings, changed: Sequence[str]) -> None:
    """Raises ConfigError that names what needs a restart, with the values that would differ."""
    before, after = dict(_flat(old.model_dump())), dict(_flat(new.model_dump()))
    fixed = [f"{key} ({_shown(before[key])} → {_shown(after[key])})" for key in changed if not _may_change(key)]
    if fixed:
        raise ConfigError(f"{', '.join(fixed)} cannot change while the daemon runs — restart it, or set it back")


def _may_change(key: str) -> bool:
    return key in LIVE_SETTINGS or key.partition(".")[0] in LIVE_SECTIONS + LATER_SECTIONS


def _line(key: str) -> str:
    later = key.partition(".")[0] in LATER_SECTIONS
    return f"{key}{' (for what is started from now on)' if later else ''}"


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)
