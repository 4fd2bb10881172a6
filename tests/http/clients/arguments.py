"""What the programs are told and ask."""

from __future__ import annotations

from collections.abc import Sequence

MODEL = "smollm2"
QUESTION = "What is the capital of France?"


def daemon_url(arguments: Sequence[str]) -> str:
    return arguments[1]


def base_url(arguments: Sequence[str]) -> str:
    return f"{daemon_url(arguments)}/v1"
