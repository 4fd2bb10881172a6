"""Estimate: what one phase takes, part by part, and the refusal of a phase that this machine cannot take."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.engines.resources.available_memory import MemoryReader, available_memory_bytes
from edgellm.errors import InsufficientMemoryError

# Left to the system and to everybody else beyond what is asked for.
SPARE_MEMORY_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """``basis`` says what the number comes from."""

    name: str
    size_bytes: int
    basis: str

    def __str__(self) -> str:
        return f"{self.name} {mib(self.size_bytes)} ({self.basis})"


@dataclass(frozen=True, slots=True)
class Estimate:
    """``phase`` is download, lowering, builder or load. A download's parts are disk, others' resident memory."""

    phase: str
    memory: tuple[Part, ...] = ()
    disk: tuple[Part, ...] = ()

    @property
    def memory_bytes(self) -> int:
        return sum(part.size_bytes for part in self.memory)

    @property
    def disk_bytes(self) -> int:
        return sum(part.size_bytes for part in self.disk)


def require_memory(
    estimate: Estimate, subject: str, remedy: str, read_available: MemoryReader = available_memory_bytes
) -> None:
    """Raise InsufficientMemoryError with every number when the phase does not fit; ``remedy`` ends the sentence."""
    available_bytes = read_available()
    needed_bytes = estimate.memory_bytes + SPARE_MEMORY_BYTES
    if available_bytes is None or needed_bytes <= available_bytes:
        return
    parts = ", ".join(str(part) for part in estimate.memory)
    raise InsufficientMemoryError(
        f"{subject}: {estimate.phase} needs {mib(needed_bytes)} of memory, {mib(available_bytes)} are available: "
        f"{parts}, and {mib(SPARE_MEMORY_BYTES)} for the rest of the system — {remedy}"
    )


def mib(size_bytes: int) -> str:
    """Rounded up, so that what is asked for is never less than what is needed."""
    return f"{-(-size_bytes >> 20)} MiB"
