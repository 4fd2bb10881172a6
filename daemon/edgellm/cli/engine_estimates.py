"""What ``edgellm engine explain`` says of memory and disk: each phase, part by part, against what there is."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgellm.config import ModelSettings
    from edgellm.engines.builder import Builder, BuildRequest
    from edgellm.engines.store import Store
    from edgellm.engines.store_entries import Entry


def estimates_of(
    model: ModelSettings, builder: Builder, request: BuildRequest, store: Store, entry: Entry | None
) -> dict[str, Any]:
    """As JSON; ``problem`` in place of phases where the model cannot be built."""
    from edgellm.engines.resources.available_memory import available_memory_bytes
    from edgellm.errors import EdgeLLMError
    from edgellm.runtime.phase_estimates import phase_estimates
    from edgellm.service.model_builds import load_options

    answer: dict[str, Any] = {
        "available_memory_bytes": available_memory_bytes(),
        "free_disk_bytes": _free_disk_bytes(store.writable),
        "phases": [],
        "problem": None,
    }
    try:
        for estimate in phase_estimates(load_options(model), builder, request, entry):
            parts = {"memory": estimate.memory, "disk": estimate.disk}
            answer["phases"].append(
                {
                    "phase": estimate.phase,
                    **{
                        kind: [
                            {"name": part.name, "size_bytes": part.size_bytes, "basis": part.basis} for part in found
                        ]
                        for kind, found in parts.items()
                    },
                }
            )
    except EdgeLLMError as error:
        answer["problem"] = str(error)
    return answer


def print_estimates(estimates: Mapping[str, Any]) -> None:
    from edgellm.engines.resources.estimate import mib

    there = {"memory": ("available", "available_memory_bytes"), "disk": ("free", "free_disk_bytes")}
    for phase in estimates["phases"]:
        for kind, (word, name) in there.items():
            parts = phase[kind]
            if parts:
                known = estimates[name]
                left = f", {mib(known)} {word}" if known is not None else ""
                print(f"  {phase['phase']}: {kind} {mib(sum(part['size_bytes'] for part in parts))}{left}")
                for part in parts:
                    print(f"    {part['name']:<32} {mib(part['size_bytes']):>12}  {part['basis']}")
    if estimates["problem"]:
        print(f"  no estimate: {estimates['problem']}")


def _free_disk_bytes(root: Path) -> int | None:
    """Of the folder, or of the nearest above it that exists."""
    for folder in (root, *root.parents):
        try:
            return shutil.disk_usage(folder).free
        except FileNotFoundError:
            continue
        except OSError:
            break
    return None
