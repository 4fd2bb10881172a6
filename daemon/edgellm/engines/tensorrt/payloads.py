"""Payloads: which native library of NVIDIA's wheel fits a machine. One exact match, or none.

The wheel's ``variants.json`` has a row a payload. A row matches when Python, processor, GPU and the names of both
libraries are equal and its platform is this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgellm.engines.json_file import read_object
from edgellm.errors import CheckpointError, RuntimeUnavailableError

PACKAGE = "tensorrt_edgellm"
MANIFEST = "_native/variants.json"
MANIFEST_SCHEMA = 1
MAX_MANIFEST_BYTES = 4 << 20
_TEXTS = (
    "variant_id",
    "python_abi",
    "cpu_arch",
    "platform_probe_source",
    "cuda_runtime_soname",
    "tensorrt_runtime_soname",
    "extension",
)


@dataclass(frozen=True, slots=True)
class Payload:
    """One row. ``probe_values`` are the platforms it is for, ``extension`` its module relative to the package."""

    variant_id: str
    python_abi: str
    cpu_arch: str
    probe_source: str
    probe_values: tuple[str, ...]
    cuda_runtime: str
    tensorrt_runtime: str
    sm: int
    extension: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """What rows are matched against; "" and 0 for what this machine does not have."""

    python_abi: str = ""
    cpu_arch: str = ""
    probe_source: str = ""
    probe_value: str = ""
    cuda_runtime: str = ""
    tensorrt_runtime: str = ""
    sm: int = 0

    def mismatches(self, payload: Payload) -> tuple[str, ...]:
        """Say in what the row differs, each as "NAME here, NAME there"; empty when it fits."""
        pairs = (
            (self.python_abi, payload.python_abi),
            (self.cpu_arch, payload.cpu_arch),
            (f"{self.probe_source} {self.probe_value}", f"{payload.probe_source} {' or '.join(payload.probe_values)}"),
            (self.cuda_runtime, payload.cuda_runtime),
            (self.tensorrt_runtime, payload.tensorrt_runtime),
            (f"SM {self.sm}", f"SM {payload.sm}"),
        )
        platform = 2
        return tuple(
            f"{theirs} instead of {ours}"
            for number, (ours, theirs) in enumerate(pairs)
            if ours != theirs and not (number == platform and self._on_platform_of(payload))
        )

    def _on_platform_of(self, payload: Payload) -> bool:
        if self.probe_source != payload.probe_source:
            return False
        if self.probe_source == "device-model":
            model = self.probe_value.casefold()
            return any(value.casefold() in model for value in payload.probe_values)
        return self.probe_value in payload.probe_values


def select_payload(host: Host, payloads: Sequence[Payload]) -> Payload:
    """Give the one row that fits. Raises RuntimeUnavailableError naming the nearest and in what it differs."""
    fitting = [payload for payload in payloads if not host.mismatches(payload)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(payload.variant_id for payload in fitting)
        raise RuntimeUnavailableError(f"several payloads of tensorrt-edgellm fit this machine: {names}")
    nearest = min(payloads, key=lambda payload: len(host.mismatches(payload)), default=None)
    if nearest is None:
        raise RuntimeUnavailableError("tensorrt-edgellm holds no payload at all")
    raise RuntimeUnavailableError(
        f"no payload of tensorrt-edgellm fits this machine; the nearest, {nearest.variant_id}, is for "
        f"{', '.join(host.mismatches(nearest))}"
    )


def installed_package() -> Path | None:
    """Give the folder of NVIDIA's package, without importing it; None when it is not installed."""
    try:
        spec = find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def read_payloads(package: Path) -> tuple[Payload, ...] | None:
    """Read the rows of an installed package; None for one built from source, which has no list.

    Raises RuntimeUnavailableError for a list that cannot be read.
    """
    path = package / MANIFEST
    if not path.is_file():
        return None
    try:
        return parse_payloads(read_object(path, MAX_MANIFEST_BYTES))
    except (CheckpointError, ValueError) as error:
        raise RuntimeUnavailableError(f"{path}: {error} — install tensorrt-edgellm again") from None


def parse_payloads(manifest: Mapping[str, Any]) -> tuple[Payload, ...]:
    """Raises ValueError for a list of another schema, or with a row that lacks a field."""
    if manifest.get("schema_version") != MANIFEST_SCHEMA:
        raise ValueError(f"schema_version is {manifest.get('schema_version')!r}, not {MANIFEST_SCHEMA}")
    rows = manifest.get("variants")
    if not isinstance(rows, list) or not rows:
        raise ValueError("variants is no list of payloads")
    return tuple(_payload(row) for row in rows)


def _payload(row: object) -> Payload:
    if not isinstance(row, Mapping):
        raise ValueError("a payload is no object")  # noqa: TRY004  # the file is wrong, not the caller
    texts = {name: row.get(name) for name in _TEXTS}
    for name, value in texts.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"a payload has no {name}")
    values, sm = row.get("platform_probe_values"), row.get("gpu_sm")
    if not isinstance(values, list) or not values or not all(isinstance(value, str) and value for value in values):
        raise ValueError(f"{texts['variant_id']} has no platform_probe_values")
    if isinstance(sm, bool) or not isinstance(sm, int | str) or not str(sm).isdecimal():
        raise ValueError(f"{texts['variant_id']} has no gpu_sm")
    return Payload(
        variant_id=str(texts["variant_id"]),
        python_abi=str(texts["python_abi"]),
        cpu_arch=str(texts["cpu_arch"]),
        probe_source=str(texts["platform_probe_source"]),
        probe_values=tuple(values),
        cuda_runtime=str(texts["cuda_runtime_soname"]),
        tensorrt_runtime=str(texts["tensorrt_runtime_soname"]),
        sm=int(sm),
        extension=str(texts["extension"]),
    )
