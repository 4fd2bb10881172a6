"""Alerts ask only for metrics and labels that a real daemon gives, and HAProxy where they are the gateway's."""

from __future__ import annotations

from pathlib import Path

import yaml
from tests.http.test_dashboard import LABELS_OF_PROMETHEUS, names_and_labels, scraped

__all__ = ["scraped"]

ALERTS = Path(__file__).parents[2] / "ansible/roles/observability/files/edgellm-alerts.yml"
OF_PROMETHEUS = {"up"}


def test_alerts_use_only_what_exists(scraped: dict[str, set[str]]) -> None:
    groups = {group["name"]: group["rules"] for group in yaml.safe_load(ALERTS.read_text())["groups"]}
    assert len(groups["edgellm"]) > 5
    for rule in groups["edgellm"]:
        names, labels = names_and_labels(rule["expr"])
        assert names, rule
        for name in names - OF_PROMETHEUS:
            assert name in scraped, f"no such metric: {name}, in {rule['alert']}"
        known = set().union(*(scraped.get(name, set()) for name in names)) | LABELS_OF_PROMETHEUS
        if any(scraped.get(name) for name in names):
            assert labels <= known, f"{labels - known} in {rule['alert']}"
