"""What a runtime module does, as measured on NVIDIA's: the adapter relies on it, so both modules must do it.

Each behaviour is a function of the module under test that asserts. They run in a process of their own, on NVIDIA's
module and on edgellm._native alike (``inspect_module``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Behaviour = Callable[[Any], None]


class Behaviours(dict[str, Behaviour]):
    """A registry: used as a decorator it takes a behaviour in under its name."""

    def __call__(self, behaviour: Behaviour) -> Behaviour:
        self[behaviour.__name__] = behaviour
        return behaviour


def refused(kind: type[BaseException], action: Callable[[], object]) -> bool:
    try:
        action()
    except kind:
        return True
    return False
