"""A new configuration is taken on whole or not at all, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from edgellm.config import Settings
from edgellm.errors import ConfigError, ModelSourceError
from edgellm.service.reconfiguration import LATER_SECTIONS, LIVE_SECTIONS, LIVE_SETTINGS, Reconfiguration
from edgellm.serving.model_spec import ModelSpec
from edgellm.serving.model_table import ModelChange


def settings(**tables: Any) -> Settings:
    return Settings.model_validate(tables)


class Taken:
    """What was taken on, and what the next reload reads."""

    def __init__(self, now: Settings, following: Settings) -> None:
        self.following = following
        self.taken: list[Settings] = []
        self.reconfiguration = Reconfiguration(now, lambda: self.following, lambda _: [], self._take_on)

    def _take_on(self, new: Settings, specs: Sequence[ModelSpec]) -> Sequence[ModelChange]:
        self.taken.append(new)
        return [ModelChange("tiny", "added")] if len(self.taken) == 1 else []


def test_what_changed_is_said_and_taken_on_once() -> None:
    async def scenario() -> None:
        new = settings(admission={"max_queued_requests": 3}, workers={"restarts_max": 1})
        taken = Taken(settings(), new)
        assert (await taken.reconfiguration.reload()).lines == [
            "admission.max_queued_requests",
            "workers.restarts_max (for what is started from now on)",
            "model tiny: added",
        ]
        assert (await taken.reconfiguration.reload()).lines == []
        assert taken.taken == [new, new]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (settings(server={"host": "127.0.0.1"}), r"server\.host \(unset → 127\.0\.0\.1\)"),
        (settings(server={"tls_certificate_file": "/c", "tls_key_file": "/k"}), r"tls_certificate_file .*tls_key_file"),
        (settings(server={"port": 1}, admission={"max_queued_requests": 1}), r"^server\.port \(8000 → 1\) cannot"),
        (settings(cache_dir="/elsewhere"), "cache_dir"),
        (settings(log={"format": "json"}), r"log\.format"),
    ],
)
def test_what_needs_a_restart_is_refused_by_name_and_nothing_is_taken_on(new: Settings, said: str) -> None:
    async def scenario() -> None:
        taken = Taken(settings(), new)
        with pytest.raises(ConfigError, match=said):
            await taken.reconfiguration.reload()
        assert taken.taken == []

    asyncio.run(scenario())


def test_a_source_that_is_not_there_changes_nothing() -> None:
    def fail(_: Settings) -> Sequence[ModelSpec]:
        raise ModelSourceError("/nowhere: no such model")

    async def scenario() -> None:
        taken: list[Settings] = []
        reconfiguration = Reconfiguration(settings(), settings, fail, lambda new, _: taken.append(new) or [])  # type: ignore[func-returns-value]
        with pytest.raises(ModelSourceError):
            await reconfiguration.reload()
        assert taken == []

    asyncio.run(scenario())


def test_every_setting_that_may_change_is_a_setting() -> None:
    fields = Settings.model_fields
    assert set(LIVE_SECTIONS + LATER_SECTIONS) <= set(fields)
    for key in LIVE_SETTINGS:
        section, _, name = key.partition(".")
        kind = fields[section].annotation
        assert kind is not None
        assert name in kind.model_fields  # type: ignore[attr-defined]
