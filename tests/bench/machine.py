"""What a reader needs to know of the machine a number was taken on, without naming it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from edgellm import __version__

NOTABLE_CPU_FLAGS = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "asimd", "asimddp", "i8mm")
PACKAGES = ("libggml-python", "xllamacpp", "uvicorn", "uvloop", "starlette")


def _field_of(path: str, *names: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return "unknown"


def describe_machine() -> str:
    """One sentence: processor, cores this process may use, notable instruction sets, memory, versions."""
    flags = set(_field_of("/proc/cpuinfo", "flags", "Features").split())
    notable = ", ".join(flag for flag in NOTABLE_CPU_FLAGS if flag in flags)
    memory_gib = int(_field_of("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    packages = ", ".join([f"edgellm {__version__}", *(f"{name} {version(name)}" for name in PACKAGES)])
    return (
        f"{_field_of('/proc/cpuinfo', 'model name', 'CPU implementer')}, {len(os.sched_getaffinity(0))} cores "
        f"({notable}), {memory_gib:.0f} GiB, {platform.machine()}, Python {platform.python_version()}; {packages}"
    )


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """Totals of /proc/stat since boot, in ticks."""

    total: int
    stolen: int
    idle: int

    @classmethod
    def now(cls) -> CpuTicks:
        ticks = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return cls(sum(ticks), stolen=ticks[7], idle=ticks[3] + ticks[4])

    def stolen_percent_since(self, start: CpuTicks) -> float:
        return 100.0 * (self.stolen - start.stolen) / max(1, self.total - start.total)
