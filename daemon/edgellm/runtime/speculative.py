"""Speculative decoding: the drafting shape of a launch, resolved against what the engines were compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.engines.tensorrt.speculation import (
    MTP_WITH_DRAFT,
    NO_METHOD,
    SPECULATIVE_METHODS,
    CompiledSpeculation,
)
from edgellm.errors import ConfigError

EAGLE_DRAFT_TOP_K = 10
LINEAR_DRAFT_TOP_K = 1
DEFAULT_DRAFT_STEP = 6
LEAST_BLOCK_TOKENS = 2


@dataclass(frozen=True, slots=True)
class SpeculativeLaunch:
    """What a launch asks for; None leaves a value to the engine. Sizes and counts are tokens."""

    method: str = NO_METHOD
    num_speculative_tokens: int | None = None
    draft_top_k: int | None = None
    draft_step: int | None = None
    verify_tree_size: int | None = None

    @property
    def top_k(self) -> int:
        return self.draft_top_k or (EAGLE_DRAFT_TOP_K if self.method == "eagle3" else LINEAR_DRAFT_TOP_K)


@dataclass(frozen=True, slots=True)
class SpeculativeShape:
    """Arguments of the runtime. ``verify_tree_size`` counts nodes with the root; ``block_size`` 0 is not a block."""

    top_k: int
    step: int
    verify_tree_size: int
    block_size: int = 0


def resolve(launch: SpeculativeLaunch, compiled: CompiledSpeculation) -> SpeculativeShape | None:
    """Give the drafting shape, None without speculative decoding. Raises ConfigError naming option and bound."""
    _check_method(launch.method, compiled.method)
    if compiled.method == NO_METHOD:
        return None
    if compiled.method == "eagle3":
        return _eagle(launch, compiled)
    if compiled.method in ("mtp", MTP_WITH_DRAFT):
        return _multi_token(launch, compiled)
    if launch.draft_step not in (None, 1):
        raise ConfigError(
            f"draft_step: {compiled.method} drafts a whole block in one step; set it to 1 or leave it out, "
            f"not {launch.draft_step}"
        )
    return _dspark(launch, compiled) if compiled.method == "dspark" else _block(launch, compiled)


def _check_method(asked: str, compiled: str) -> None:
    accepted = (asked, MTP_WITH_DRAFT) if asked == "mtp" else (asked,)
    if compiled not in accepted:
        raise ConfigError(
            f"speculative_config.method: {_named(asked)} is asked for, and the engine was compiled for "
            f"{_named(compiled)} — build an engine for what is asked, or ask for what was compiled"
        )
    if compiled not in (NO_METHOD, MTP_WITH_DRAFT, *SPECULATIVE_METHODS):
        raise ConfigError(
            f"speculative_config.method: the engine was compiled for {compiled!r}, which this version does not know; "
            f"it knows {', '.join(SPECULATIVE_METHODS)}"
        )


def _named(method: str) -> str:
    return "no speculative decoding" if method == NO_METHOD else repr(method)


def _step(launch: SpeculativeLaunch) -> int:
    return launch.num_speculative_tokens or launch.draft_step or DEFAULT_DRAFT_STEP


def _eagle(launch: SpeculativeLaunch, compiled: CompiledSpeculation) -> SpeculativeShape:
    size = launch.verify_tree_size or compiled.max_verify_tree_size
    _check_tree(launch.top_k, size, compiled)
    return SpeculativeShape(launch.top_k, _step(launch), size)


def _multi_token(launch: SpeculativeLaunch, compiled: CompiledSpeculation) -> SpeculativeShape:
    step = _step(launch)
    if 0 < compiled.max_draft_tree_size < step:
        raise ConfigError(
            f"{_step_option(launch)}: {compiled.method} drafts at most {compiled.max_draft_tree_size} tokens on this "
            f"engine, not {step} — ask for fewer, or build with a larger max_draft_tree_size"
        )
    return SpeculativeShape(launch.top_k, step, _verify_size(launch, compiled, linear_size=step + 1))


def _step_option(launch: SpeculativeLaunch) -> str:
    return "speculative_config.num_speculative_tokens" if launch.num_speculative_tokens else "draft_step"


def _block(launch: SpeculativeLaunch, compiled: CompiledSpeculation) -> SpeculativeShape:
    capacity = min(compiled.block_size, compiled.max_draft_tree_size or compiled.block_size)
    if capacity < LEAST_BLOCK_TOKENS:
        raise ConfigError(
            f"speculative_config: the {compiled.method} draft engine proposes blocks of {capacity} tokens, and "
            f"{LEAST_BLOCK_TOKENS} are the least — build it again with a larger max_draft_tree_size"
        )
    block = _proposal(launch, compiled, least=LEAST_BLOCK_TOKENS, most=capacity)
    return SpeculativeShape(launch.top_k, 1, _verify_size(launch, compiled, linear_size=block), block)


def _dspark(launch: SpeculativeLaunch, compiled: CompiledSpeculation) -> SpeculativeShape:
    if launch.top_k == LINEAR_DRAFT_TOP_K:
        capacity = min(compiled.block_size, compiled.max_draft_tree_size or compiled.block_size)
        if capacity < 1:
            raise ConfigError(
                "speculative_config: the dspark draft engine proposes no tokens — build it again from a draft "
                "checkpoint that states its block_size"
            )
        proposal = _proposal(launch, compiled, least=1, most=capacity)
        return SpeculativeShape(launch.top_k, 1, _verify_size(launch, compiled, linear_size=proposal + 1))
    if launch.num_speculative_tokens is not None:
        raise ConfigError(
            "speculative_config.num_speculative_tokens: a dspark tree takes verify_tree_size as its budget of nodes; "
            "leave num_speculative_tokens out, or set draft_top_k to 1"
        )
    size = _verify_size(launch, compiled, linear_size=0)
    if compiled.replays_recurrent_state and size != compiled.max_verify_tree_size:
        raise ConfigError(
            f"verify_tree_size: a dspark tree on this hybrid model takes exactly the compiled "
            f"{compiled.max_verify_tree_size} nodes, not {size}"
        )
    return SpeculativeShape(launch.top_k, 1, size)


def _proposal(launch: SpeculativeLaunch, compiled: CompiledSpeculation, *, least: int, most: int) -> int:
    asked = launch.num_speculative_tokens or most
    if not least <= asked <= most:
        raise ConfigError(
            f"speculative_config.num_speculative_tokens: {compiled.method} proposes {least} to {most} tokens on this "
            f"engine, not {asked}"
        )
    return asked


def _verify_size(launch: SpeculativeLaunch, compiled: CompiledSpeculation, *, linear_size: int) -> int:
    """Give the nodes to verify. A line (top_k 1) has as many as it proposes; a tree any number that fits."""
    if launch.top_k > 1:
        size = launch.verify_tree_size or compiled.max_verify_tree_size
        _check_tree(launch.top_k, size, compiled)
        return size
    if launch.verify_tree_size not in (None, linear_size):
        raise ConfigError(
            f"verify_tree_size: {compiled.method} without a tree verifies exactly {linear_size} tokens, not "
            f"{launch.verify_tree_size} — for a larger engine set max_verify_tree_size"
        )
    if linear_size > compiled.max_verify_tree_size:
        raise ConfigError(
            f"verify_tree_size: {compiled.method} would verify {linear_size} tokens, and the engine was compiled for "
            f"{compiled.max_verify_tree_size} — draft fewer, or build with a larger max_verify_tree_size"
        )
    return linear_size


def _check_tree(top_k: int, size: int, compiled: CompiledSpeculation) -> None:
    # A tree holds its root and the first branching at least.
    least = top_k + 1 if top_k > 1 else 1
    if least <= size <= compiled.max_verify_tree_size:
        return
    raise ConfigError(
        f"verify_tree_size: with draft_top_k {top_k} the {compiled.method} tree takes {least} nodes at least, and the "
        f"engine was compiled for {compiled.max_verify_tree_size} at most; {size} is asked for"
    )
