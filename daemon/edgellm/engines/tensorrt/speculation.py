"""Speculative methods as engines are compiled for them."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.engines.build_profile import SPEC_TYPES

NO_METHOD = "none"
# What a launch asks for; a separate draft checkpoint turns mtp into another kind of engine.
SPECULATIVE_METHODS = ("eagle3", "mtp", "dflash", "jetspec", "dspark")
MTP_WITH_DRAFT = "gemma4_mtp"
METHODS_WITH_DRAFT_CHECKPOINT = frozenset(SPEC_TYPES) - {NO_METHOD, "mtp"}
# Methods whose base is compiled for a line, or for trees on demand.
TREE_BASE_METHODS = frozenset({"mtp", "dflash", "jetspec", "dspark"})

DEFAULT_MAX_VERIFY_TREE_SIZE = 60


@dataclass(frozen=True, slots=True)
class CompiledSpeculation:
    """What a pair of engines was compiled for. ``max_draft_tree_size`` and ``block_size`` are 0 where not stated.

    ``replays_recurrent_state`` marks hybrid bases that verify a tree by replaying their recurrent state.
    """

    method: str = NO_METHOD
    max_verify_tree_size: int = DEFAULT_MAX_VERIFY_TREE_SIZE
    max_draft_tree_size: int = 0
    block_size: int = 0
    replays_recurrent_state: bool = False


def engine_method(method: str, draft_model: str) -> str:
    """Give what an engine is compiled for when ``method`` is asked with or without a draft checkpoint."""
    return MTP_WITH_DRAFT if method == "mtp" and draft_model else method
