"""Weight panels: the derived part of a native bundle that its runtime maps instead of packing weights at every load."""

from __future__ import annotations

from pathlib import Path

from edgellm.engines.bundle import MODEL_FILE
from edgellm.engines.derived_parts import PartKind, find_part
from edgellm.engines.lease import Lease
from edgellm.engines.store import Store
from edgellm.runtime.contract import RuntimeModule
from edgellm.runtime.native_errors import map_load_error

PANELS_FILE = "panels.bin"


def with_panels(module: RuntimeModule, store: Store, lease: Lease) -> Lease:
    """The bundle of ``lease``, which is taken over, with panels for this CPU in the store where they can be kept."""
    kind = panel_kind(module)
    if kind is None:
        return lease

    def write(folder: Path) -> bool:
        try:
            return bool(module.write_engine_panels(str(directory), str(folder / PANELS_FILE)))
        except Exception as error:  # pybind raises whatever type the module registered
            raise map_load_error(module, error, in_flight_batching=False) from error

    directory = lease.directory
    record = lease.manifest.files.get(MODEL_FILE)
    return store.with_part(lease, kind, write, record.size_bytes if record else 0)


def panels_file(module: RuntimeModule, lease: Lease) -> str:
    """The file that ``RuntimeOptions.weight_panels`` takes; "" where the bundle has none for this CPU."""
    kind = panel_kind(module)
    folder = find_part(lease.directory, lease.manifest, kind) if kind else None
    return str(folder / PANELS_FILE) if folder else ""


def panel_kind(module: RuntimeModule) -> PartKind | None:
    """None where kernels of this CPU read weights as they are in the file."""
    if not hasattr(module, "panel_kind"):
        return None
    kind = module.panel_kind()
    if not kind.kernel_set:
        return None
    return PartKind(f"panels-{kind.kernel_set}", {"kernel_set": kind.kernel_set, "layout_version": kind.layout_version})
