"""What tests with requests made up from our OpenAPI document share: a daemon with a tiny model, and what it is held to.

Answers of every status must have the media type and the shape that the document says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import CHECKS, load_all_checks
from tests.http.daemon_process import Daemon
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint

from edgellm.api.app import create_app
from edgellm.serving.engine_client import EngineClient

load_all_checks()
HELD_TO = CHECKS.get_by_names(
    ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)
CONTEXT_TOKENS = 96
REQUEST_DEADLINE_SECONDS = 60.0
BOUNDED: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,  # the same requests each time
    "suppress_health_check": list(HealthCheck),
}


@pytest.fixture(scope="module")
def tiny_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("tiny")
    source = write_checkpoint(folder / "model", replace(VARIANTS["llama"], context_length=CONTEXT_TOKENS))
    started = Daemon(source, "--cache-dir", str(folder / "cache"))
    try:
        yield started.wait_until_ready()
        started.still_serves()
    finally:
        started.stop()


def openapi_schema() -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_dict(create_app(EngineClient([])).openapi())


def answers_well(case: schemathesis.Case, daemon: Daemon) -> None:
    case.call_and_validate(daemon.url, checks=HELD_TO, timeout=REQUEST_DEADLINE_SECONDS)
