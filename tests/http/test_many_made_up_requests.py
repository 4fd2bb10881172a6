"""Requests made up from our OpenAPI document: many a route. Making them takes minutes, before the first is sent."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import settings
from tests.http.daemon_process import Daemon
from tests.http.made_up_requests import BOUNDED, answers_well, openapi_schema, tiny_daemon

__all__ = ["tiny_daemon"]

schema = openapi_schema()


@pytest.mark.long
@schema.parametrize()
@settings(max_examples=1000, **BOUNDED)
def test_none_of_many_requests_breaks_the_server(case: schemathesis.Case, tiny_daemon: Daemon) -> None:
    answers_well(case, tiny_daemon)
