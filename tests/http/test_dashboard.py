"""The Grafana dashboard asks only for metrics and labels that a real daemon gives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.http.daemon_process import Daemon

DASHBOARD = Path(__file__).parents[2] / "ansible/roles/observability/files/edgellm-dashboard.json"
# What Prometheus adds to every series, and what a histogram's buckets have.
LABELS_OF_PROMETHEUS = {"instance", "job", "le"}
_STRING = re.compile(r'"[^"]*"')
_DURATION = re.compile(r"\[[^\]]*\]")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)?\s*\{([^}]*)\}")
_NAME = re.compile(r"\b([a-zA-Z_:][\w:]*)\b(?!\s*\()")
_LABEL = re.compile(r"\s*(\w+)\s*[=!]")
_WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}


def expressions(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "definition") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def names_and_labels(expression: str) -> tuple[set[str], set[str]]:
    """The metrics that a PromQL expression reads and the labels it selects or groups by."""
    if listed := re.fullmatch(r"label_values\((\w+), (\w+)\)", expression):
        return {listed[1]}, {listed[2]}
    text = _DURATION.sub("", _STRING.sub('""', expression))
    labels: set[str] = set()
    for group in _GROUPING.findall(text):
        labels |= {label.strip() for label in group.split(",")}
    text = _GROUPING.sub("", text)
    for _, matchers in _SELECTOR.findall(text):
        labels |= {found[1] for matcher in matchers.split(",") if (found := _LABEL.match(matcher))}
    text = re.sub(r"\{[^}]*\}", "", text)
    return {name for name in _NAME.findall(text) if name.lower() not in _WORDS}, labels


def test_expressions_are_taken_apart_rightly() -> None:
    quantile = 'histogram_quantile(0.5, sum by (le, model) (rate(a_bucket{model=~"$model", x!="b c"}[5m]))) / b == 1'
    assert names_and_labels(quantile) == ({"a_bucket", "b"}, {"le", "model", "x"})
    assert names_and_labels("label_values(a, model)") == ({"a"}, {"model"})


@pytest.fixture(scope="module")
def scraped(daemon: Daemon) -> dict[str, set[str]]:
    """Every series name of a real scrape with the labels it has; none where nothing has happened yet."""
    daemon.text("Say hello.")
    daemon.chat("Say hello.", colour="red")
    daemon.chat("Say hello.", store=True)
    daemon.wait_for(lambda: "edgellm_lane_context_cache{" in daemon.get("/metrics").text)
    series: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(daemon.get("/metrics").text):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        for suffix in suffixes:
            series.setdefault(family.name + suffix, set())
        for sample in family.samples:
            series.setdefault(sample.name, set()).update(sample.labels)
    return series


def test_the_dashboard_uses_only_what_exists(scraped: dict[str, set[str]]) -> None:
    asked = list(expressions(json.loads(DASHBOARD.read_text(encoding="utf-8"))))
    assert len(asked) > 20
    for expression in asked:
        names, labels = names_and_labels(expression)
        assert names, expression
        for name in names:
            assert name in scraped, f"no such metric: {name}, in {expression}"
        known = set().union(*(scraped[name] for name in names)) | LABELS_OF_PROMETHEUS
        if any(scraped[name] for name in names):
            assert labels <= known, f"{labels - known} in {expression}"


def test_everything_that_operators_watch_is_measured(scraped: dict[str, set[str]]) -> None:
    for name in (
        "edgellm_requests_total",
        "edgellm_waiting_requests",
        "edgellm_queue_seconds_bucket",
        "edgellm_time_to_first_token_seconds_bucket",
        "edgellm_inter_token_seconds_bucket",
        "edgellm_request_seconds_bucket",
        "edgellm_prefill_seconds_bucket",
        "edgellm_decode_seconds_bucket",
        "edgellm_prompt_tokens_total",
        "edgellm_generated_tokens_total",
        "edgellm_cached_prompt_tokens_total",
        "edgellm_lanes_active",
        "edgellm_lanes_busy",
        "edgellm_lanes_lost_total",
        "edgellm_lanes_restarted_total",
        "edgellm_lane_context_cache",
        "edgellm_front_end_memory_bytes",
        "edgellm_worker_memory_bytes",
        "edgellm_available_memory_bytes",
        "edgellm_unknown_fields_total",
    ):
        assert name in scraped, name
