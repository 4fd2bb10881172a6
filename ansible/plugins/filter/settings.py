"""What a board is configured with, by its variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

SETTINGS = "edgellm_settings"
PART = f"{SETTINGS}_"


def board_settings(variables: Mapping[str, Any], whole: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """``edgellm_settings`` with all ``edgellm_settings_NAME`` laid over it, in the order of their names: tables by key,
    everything else whole. ``whole`` takes the place of the first where it is given.
    """
    names = sorted(name for name in variables if name.startswith(PART))
    settings: dict[str, Any] = dict(whole if whole is not None else variables.get(SETTINGS) or {})
    for name in names:
        settings = _laid_over(settings, variables[name])
    return settings


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _laid_over(merged[key], value) if both else value
    return merged


def board_port(variables: Mapping[str, Any], otherwise: int) -> int:
    """Where gateways and Prometheus reach a board: what is said of them, of its firewall, or in its settings."""
    for name in ("gateway_board_port", "edgellm_port"):
        if variables.get(name) is not None:
            return int(variables[name])
    server = board_settings(variables).get("server")
    port = server.get("port") if isinstance(server, Mapping) else None
    return otherwise if port is None else int(port)


class FilterModule:
    """How Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"board_settings": board_settings, "board_port": board_port}
