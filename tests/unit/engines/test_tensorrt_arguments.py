"""Profiles that NVIDIA's builder would refuse, or begin with and fail on, are refused by the names of the profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.tensorrt.arguments import BuildFolders, builder_arguments, check_profile
from edgellm.errors import ConfigError

FOLDERS = BuildFolders(Path("/m"), Path("/e"))


def value_of(arguments: list[str], option: str) -> str:
    return arguments[arguments.index(option) + 1]


def test_lengths_are_always_passed_and_everything_is_built_at_once() -> None:
    arguments = builder_arguments(BuildProfile(), FOLDERS)
    assert value_of(arguments, "--components") == "all"
    assert value_of(arguments, "--max-input-len") == "4096"
    assert value_of(arguments, "--max-kv-cache-capacity") == "8192"
    assert value_of(arguments, "--max-batch-size") == "1"
    assert "--max-image-tokens" not in arguments
    assert "--draft-model-dir" not in arguments


def test_a_value_reaches_its_option() -> None:
    profile = BuildProfile(spec_type="mtp", tree_base=True, max_lora_rank=8, max_verify_tree_size=16)
    arguments = builder_arguments(profile, FOLDERS)
    assert value_of(arguments, "--spec-type") == "mtp"
    assert value_of(arguments, "--max-lora-rank") == "8"
    assert value_of(arguments, "--max-verify-tree-size") == "16"
    assert "--tree-base" in arguments
    assert "--fp8-embedding" not in arguments


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_input_len": 0}, "max_input_len must be at least 1, not 0"),
        ({"max_draft_tree_size": -1, "spec_type": "mtp"}, "max_draft_tree_size must be at least 1"),
        ({"max_lora_rank": -1}, "max_lora_rank must be 0"),
        ({"dense": "fp4"}, "dense 'fp4' is not one of auto, nvfp4-qdq, fp16"),
        ({"int4_gemm_plugin_version": 3}, "int4_gemm_plugin_version must be 1 or 2"),
        (
            {"max_image_tokens": 256},
            "max_image_tokens_per_image 512 is more than max_image_tokens 256 — set both; max_image_tokens_per_image",
        ),
        ({"min_time_steps": 9, "max_time_steps": 8}, "min_time_steps 9 is more than max_time_steps 8 — set both$"),
        ({"opt_code_len": 2001}, "opt_code_len 2001 is more than max_code_len 2000"),
        ({"spec_type": "eagle3"}, "speculative_config.model: eagle3 takes its draft"),
        ({"spec_type": "gemma4_mtp"}, "speculative_config.model: gemma4_mtp takes its draft"),
        ({"tree_base": True}, "tree_base is for dflash, dspark, jetspec, mtp, not for spec_type none"),
        ({"draft_reduced_vocab_digest": "0" * 64}, "draft_reduced_vocab_dir: NVIDIA's builder cannot reduce"),
        ({"fp8_embedding": True, "spec_type": "mtp"}, "fp8_embedding: the draft of mtp shares"),
    ],
)
def test_a_profile_that_the_builder_would_refuse_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_profile(BuildProfile(**values), has_draft=False)


def test_a_draft_checkpoint_needs_a_method_that_has_one() -> None:
    for method in ("none", "mtp"):
        with pytest.raises(ConfigError, match=f"spec_type {method} takes no draft checkpoint"):
            check_profile(BuildProfile(spec_type=method), has_draft=True)
    for method in ("eagle3", "dflash", "jetspec", "dspark", "gemma4_mtp"):
        check_profile(BuildProfile(spec_type=method), has_draft=True)


def test_a_base_that_verifies_blocks_keeps_its_vocabulary() -> None:
    with pytest.raises(ConfigError, match="reduced_vocab_dir: the base of dspark"):
        check_profile(BuildProfile(spec_type="dspark", reduced_vocab_digest="0" * 64), has_draft=True)
    check_profile(BuildProfile(spec_type="eagle3", reduced_vocab_digest="0" * 64), has_draft=True)
