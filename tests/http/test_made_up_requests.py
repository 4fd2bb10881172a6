"""Requests made up from our OpenAPI document: a few a route, and those at the edges of its schema."""

from __future__ import annotations

import schemathesis
from hypothesis import settings
from tests.http.daemon_process import Daemon
from tests.http.made_up_requests import BOUNDED, answers_well, openapi_schema, tiny_daemon

__all__ = ["tiny_daemon"]

schema = openapi_schema()


@schema.parametrize()
@settings(max_examples=8, **BOUNDED)
def test_no_request_breaks_the_server(case: schemathesis.Case, tiny_daemon: Daemon) -> None:
    answers_well(case, tiny_daemon)
