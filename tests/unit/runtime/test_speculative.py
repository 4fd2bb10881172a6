"""Drafting shapes: each rule of each method, on both sides."""

from __future__ import annotations

import pytest

from edgellm.engines.tensorrt.speculation import CompiledSpeculation, engine_method
from edgellm.errors import ConfigError
from edgellm.runtime.speculative import SpeculativeLaunch, SpeculativeShape, resolve


def compiled(method: str, **sizes: int | bool) -> CompiledSpeculation:
    return CompiledSpeculation(method, **sizes)  # type: ignore[arg-type]


EAGLE = compiled("eagle3")
MTP = compiled("mtp", max_verify_tree_size=9, max_draft_tree_size=8)
DFLASH = compiled("dflash", max_verify_tree_size=16, max_draft_tree_size=6, block_size=8)
DSPARK = compiled("dspark", max_verify_tree_size=12, max_draft_tree_size=7, block_size=8)


@pytest.mark.parametrize(
    ("launch", "engine", "shape"),
    [
        (SpeculativeLaunch("eagle3"), EAGLE, SpeculativeShape(10, 6, 60)),
        (SpeculativeLaunch("eagle3", draft_step=4, verify_tree_size=11), EAGLE, SpeculativeShape(10, 4, 11)),
        (SpeculativeLaunch("eagle3", 5, 4, 3, 5), EAGLE, SpeculativeShape(4, 5, 5)),
        (SpeculativeLaunch("eagle3", draft_top_k=1, verify_tree_size=1), EAGLE, SpeculativeShape(1, 6, 1)),
        (SpeculativeLaunch("mtp"), MTP, SpeculativeShape(1, 6, 7)),
        (SpeculativeLaunch("mtp", 8, draft_step=2, verify_tree_size=9), MTP, SpeculativeShape(1, 8, 9)),
        (SpeculativeLaunch("mtp", draft_step=2), MTP, SpeculativeShape(1, 2, 3)),
        (SpeculativeLaunch("mtp", draft_top_k=3), MTP, SpeculativeShape(3, 6, 9)),
        (SpeculativeLaunch("mtp", draft_top_k=3, verify_tree_size=4), MTP, SpeculativeShape(3, 6, 4)),
        (SpeculativeLaunch("mtp", 50), compiled("mtp"), SpeculativeShape(1, 50, 51)),
        (SpeculativeLaunch("mtp"), compiled("gemma4_mtp"), SpeculativeShape(1, 6, 7)),
        (SpeculativeLaunch("dflash"), DFLASH, SpeculativeShape(1, 1, 6, 6)),
        (SpeculativeLaunch("dflash", 2, draft_step=1), DFLASH, SpeculativeShape(1, 1, 2, 2)),
        (SpeculativeLaunch("dflash", draft_top_k=4), DFLASH, SpeculativeShape(4, 1, 16, 6)),
        (SpeculativeLaunch("jetspec"), compiled("jetspec", block_size=8), SpeculativeShape(1, 1, 8, 8)),
        (SpeculativeLaunch("dspark"), DSPARK, SpeculativeShape(1, 1, 8)),
        (SpeculativeLaunch("dspark", 1), DSPARK, SpeculativeShape(1, 1, 2)),
        (SpeculativeLaunch("dspark", draft_top_k=3, verify_tree_size=4), DSPARK, SpeculativeShape(3, 1, 4)),
        (
            SpeculativeLaunch("dspark", draft_top_k=3),
            compiled("dspark", max_verify_tree_size=9, block_size=8, replays_recurrent_state=True),
            SpeculativeShape(3, 1, 9),
        ),
        (
            # Only trees are verified by replay; a line takes what it proposes.
            SpeculativeLaunch("dspark", 3),
            compiled("dspark", max_verify_tree_size=9, block_size=8, replays_recurrent_state=True),
            SpeculativeShape(1, 1, 4),
        ),
    ],
)
def test_defaults_and_asked_values_give_a_shape(
    launch: SpeculativeLaunch, engine: CompiledSpeculation, shape: SpeculativeShape
) -> None:
    assert resolve(launch, engine) == shape


@pytest.mark.parametrize(
    ("launch", "engine", "message"),
    [
        (SpeculativeLaunch("eagle3", verify_tree_size=61), EAGLE, r"verify_tree_size.*60 at most; 61"),
        (SpeculativeLaunch("eagle3", verify_tree_size=10), EAGLE, r"draft_top_k 10.*11 nodes at least.*10 is asked"),
        (SpeculativeLaunch("eagle3"), compiled("eagle3", max_verify_tree_size=8), r"compiled for 8 at most"),
        (SpeculativeLaunch("mtp", verify_tree_size=6), MTP, r"verify_tree_size.*exactly 7 tokens, not 6"),
        (SpeculativeLaunch("mtp", 9), MTP, r"num_speculative_tokens: mtp drafts at most 8 tokens.*not 9"),
        (SpeculativeLaunch("mtp", draft_step=9), MTP, r"^draft_step: mtp drafts at most 8"),
        (SpeculativeLaunch("mtp", 60), compiled("mtp"), r"would verify 61 tokens.*compiled for 60"),
        (SpeculativeLaunch("mtp", draft_top_k=3, verify_tree_size=3), MTP, r"4 nodes at least"),
        (SpeculativeLaunch("mtp", draft_top_k=3, verify_tree_size=10), MTP, r"9 at most"),
        (SpeculativeLaunch("dflash", draft_step=2), DFLASH, r"draft_step: dflash drafts a whole block.*not 2"),
        (SpeculativeLaunch("dflash", 1), DFLASH, r"proposes 2 to 6 tokens.*not 1"),
        (SpeculativeLaunch("dflash", 7), DFLASH, r"proposes 2 to 6 tokens.*not 7"),
        (SpeculativeLaunch("dflash", verify_tree_size=7), DFLASH, r"exactly 6 tokens, not 7"),
        (SpeculativeLaunch("jetspec"), compiled("jetspec", block_size=1), r"blocks of 1 tokens"),
        (SpeculativeLaunch("jetspec"), compiled("jetspec"), r"blocks of 0 tokens"),
        (SpeculativeLaunch("dspark", 8), DSPARK, r"proposes 1 to 7 tokens.*not 8"),
        (SpeculativeLaunch("dspark", draft_step=2), DSPARK, r"draft_step: dspark"),
        (SpeculativeLaunch("dspark"), compiled("dspark"), r"proposes no tokens"),
        (SpeculativeLaunch("dspark", 3, draft_top_k=2), DSPARK, r"num_speculative_tokens: a dspark tree"),
        (
            SpeculativeLaunch("dspark", draft_top_k=3, verify_tree_size=8),
            compiled("dspark", max_verify_tree_size=9, block_size=8, replays_recurrent_state=True),
            r"exactly the compiled 9 nodes, not 8",
        ),
    ],
)
def test_what_the_engine_cannot_do_is_refused_by_option_and_bound(
    launch: SpeculativeLaunch, engine: CompiledSpeculation, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(launch, engine)


@pytest.mark.parametrize(
    ("asked", "built", "names"),
    [
        ("eagle3", "mtp", ("'eagle3'", "'mtp'")),
        ("dflash", "jetspec", ("'dflash'", "'jetspec'")),
        ("gemma4_mtp", "mtp", ("'gemma4_mtp'", "'mtp'")),
        ("none", "eagle3", ("no speculative decoding", "'eagle3'")),
        ("mtp", "none", ("'mtp'", "no speculative decoding")),
    ],
)
def test_an_engine_of_another_method_is_refused_with_both_names(asked: str, built: str, names: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as refusal:
        resolve(SpeculativeLaunch(asked), compiled(built))
    assert all(name in str(refusal.value) for name in names)


def test_an_engine_of_an_unknown_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="'magic', which this version does not know"):
        resolve(SpeculativeLaunch("magic"), compiled("magic"))


def test_without_a_method_there_is_no_shape() -> None:
    assert resolve(SpeculativeLaunch(), CompiledSpeculation()) is None


def test_multi_token_prediction_with_a_draft_checkpoint_is_another_kind_of_engine() -> None:
    assert engine_method("mtp", "") == "mtp"
    assert engine_method("mtp", "/drafts/assistant") == "gemma4_mtp"
    assert engine_method("eagle3", "/drafts/eagle") == "eagle3"
