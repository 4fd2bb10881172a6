"""Which groups of the inventory give a host a variable."""

from __future__ import annotations

from typing import Any

from ansible.vars.plugins import get_vars_from_inventory_sources

STAGES = ("inventory", "task")


def givers(hostvars: Any, host_name: str, variable: str) -> list[str]:
    """Names of groups that set it, in the inventory itself or in group_vars. A host that sets it means to replace."""
    inventory, loader = hostvars._inventory, hostvars._loader
    host = inventory.get_host(host_name)
    if host is None:
        return []
    groups = sorted(host.get_groups(), key=lambda group: (group.depth, group.priority, group.name))
    return [one.name for one in groups if variable in one.vars or variable in _of_files(loader, inventory, one)]


def _of_files(loader: Any, inventory: Any, group: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for stage in STAGES:
        found |= get_vars_from_inventory_sources(loader, inventory._sources, [group], stage)
    return found
