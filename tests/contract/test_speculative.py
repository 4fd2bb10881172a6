"""Drafting shapes: ours equal those of NVIDIA's server, and are refused where it refuses."""

from __future__ import annotations

import itertools
from typing import Any

from tests.contract.nvidia_binary import NvidiaBinary
from tests.contract.nvidia_verdicts import ask

from edgellm.engines.tensorrt.engine_metadata import compiled_speculation
from edgellm.errors import ConfigError
from edgellm.runtime.speculative import SpeculativeLaunch, resolve

METHODS = ("eagle3", "mtp", "dflash", "jetspec", "dspark")
COMPILED_METHODS = (*METHODS, "gemma4_mtp")


def cases() -> list[dict[str, Any]]:
    """Every method asked of every compiled one, over sizes around each bound."""
    found = []
    for asked, compiled in itertools.product(METHODS, COMPILED_METHODS):
        matches = asked == compiled or (asked, compiled) == ("mtp", "gemma4_mtp")
        launches = [
            *itertools.product(
                (None, 1, 4, 7) if matches else (None,),
                (None, 1, 4) if matches else (None,),
                (None, 1, 6) if matches else (None,),
                (None, 2, 4, 5, 8, 9, 61) if matches else (None,),
            )
        ]
        for base, draft in engines(compiled):
            for tokens, top_k, step, verify in launches:
                launch = {
                    "method": asked,
                    "num_speculative_tokens": tokens,
                    "draft_top_k": top_k,
                    "draft_step": step,
                    "verify_tree_size": verify,
                }
                found.append({"launch": launch, "base": base, "draft": draft})
    return found


def engines(method: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    base = {"spec_decode_type": method}
    return [
        (base, {"block_size": 8}),
        ({**base, "builder_config": {"max_verify_tree_size": 8}}, {"builder_config": {"max_draft_tree_size": 5}}),
        (
            {**base, "builder_config": {"max_verify_tree_size": 60}},
            {f"{method}_config": {"block_size": 8}, "builder_config": {"max_draft_tree_size": 4}},
        ),
        (
            {
                **base,
                "builder_config": {"max_verify_tree_size": 9},
                "num_linear_attn_layers": 2,
                "recurrent_spec_verify_mode": "replay",
            },
            {"dflash_config": {"block_size": 7}, f"{method}_config": {"block_size": 8}},
        ),
    ]


def ours(case: dict[str, Any]) -> list[int] | None:
    """Our shape in the order of NVIDIA's; None for a refusal."""
    try:
        shape = resolve(SpeculativeLaunch(**case["launch"]), compiled_speculation(case["base"], case["draft"]))
    except ConfigError:
        return None
    assert shape is not None
    return [shape.top_k, shape.step, shape.verify_tree_size, shape.block_size]


def test_every_shape_is_the_one_that_nvidias_server_resolves(nvidia_binary: NvidiaBinary) -> None:
    asked = cases()
    accepted = 0
    for case, verdict in zip(asked, ask(nvidia_binary.site, "speculative_shape", asked), strict=True):
        theirs = verdict if isinstance(verdict, list) else None
        if case["launch"]["method"] == case["base"]["spec_decode_type"] == "eagle3":
            # NVIDIA's server leaves the bounds of an eagle3 tree to its runtime; here they are refused by name.
            top_k, _, size, _ = verdict
            compiled_most = case["base"].get("builder_config", {}).get("max_verify_tree_size", 60)
            fits = (top_k + 1 if top_k > 1 else 1) <= size <= compiled_most
            theirs = verdict if fits else None
        assert ours(case) == theirs, (case, verdict)
        accepted += theirs is not None
    assert 0 < accepted < len(asked)
