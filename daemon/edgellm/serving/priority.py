"""Priority: the class a request waits in. A higher class goes first; within one, clients take turns."""

from __future__ import annotations

from enum import Enum


class Priority(Enum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
