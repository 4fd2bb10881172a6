"""One daemon a session for tests that only talk to it; others start their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest
from tests.http.daemon_process import Daemon

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.source import resolve

StartDaemon = Callable[..., Daemon]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.model)


@pytest.fixture(scope="session")
def model_source() -> Path:
    """The model of a fresh machine, downloaded when it is not there."""
    return resolve("smollm2-135m-instruct", models_dir(default_cache_dir(os.environ))).path


@pytest.fixture(scope="session")
def daemon(model_source: Path) -> Iterator[Daemon]:
    started = Daemon(model_source)
    try:
        yield started.wait_until_ready()
    finally:
        started.stop()


@pytest.fixture
def start_daemon(model_source: Path) -> Iterator[StartDaemon]:
    """``start_daemon("--max-batch-size", "1")``: a daemon of the test's own, ready unless ``ready=False``."""
    started: list[Daemon] = []

    def start(
        *options: str, ready: bool = True, env: dict[str, str] | None = None, authority: Path | None = None
    ) -> Daemon:
        one = Daemon(model_source, *options, env=env, authority=authority)
        started.append(one)
        return one.wait_until_ready() if ready else one

    try:
        yield start
    finally:
        for one in started:
            one.stop()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as made:
        yield made
