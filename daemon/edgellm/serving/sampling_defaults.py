"""SamplingDefaults: what holds for a sampling field that a request leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

_DEFAULT_MAX_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """OpenAI's defaults, over which the model's own and then the operator's are laid."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int = _DEFAULT_MAX_TOKENS

    def overlaid(self, values: Mapping[str, object]) -> SamplingDefaults:
        """``values`` go by the names of a checkpoint's generation_config.json, as the operator's do: ``max_new_tokens``
        is ``max_tokens``. Other names, and numbers out of range, are left aside: a checkpoint's file is not a request.
        """
        if "max_new_tokens" in values:
            values = {**values, "max_tokens": values["max_new_tokens"]}
        known = {field.name for field in fields(self)}
        usable = {name: value for name, value in values.items() if name in known and _usable(name, value)}
        return replace(self, **usable)  # type: ignore[arg-type]  # names and types were just checked

    def with_generation_config(self, config: Mapping[str, object]) -> SamplingDefaults:
        """``config`` is a checkpoint's generation_config.json; ``do_sample`` false means greedy."""
        laid = self.overlaid(config)
        return replace(laid, temperature=0.0) if config.get("do_sample") is False else laid


def _usable(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    match name:
        case "temperature":
            return 0 <= value <= 2
        case "top_p":
            return 0 < value <= 1
        case "min_p":
            return 0 <= value <= 1
        case "frequency_penalty" | "presence_penalty":
            return -2 <= value <= 2
        case "repetition_penalty":
            return 0 < value <= 2
        case "top_k":
            return isinstance(value, int) and value >= -1
        case _:
            return isinstance(value, int) and value >= 1
