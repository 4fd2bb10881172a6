"""ReasoningState: how far an answer has come, seen from its reasoning."""

from __future__ import annotations

from enum import Enum


class ReasoningState(Enum):
    BEFORE = "before"  # reasoning may still begin
    INSIDE = "inside"
    AFTER = "after"  # it has ended, or there is none
