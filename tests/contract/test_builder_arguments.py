"""Argument vectors: NVIDIA's own parser takes each of them and reads the values that the profile holds."""

from __future__ import annotations

import random
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from tests.contract.checkpoint_configs import write_files
from tests.contract.nvidia_binary import NvidiaBinary
from tests.contract.nvidia_verdicts import ask

from edgellm.engines.build_profile import SPEC_TYPES, BuildProfile
from edgellm.engines.tensorrt.arguments import BUILDER_DEFAULTS, BuildFolders, builder_arguments, check_profile
from edgellm.engines.tensorrt.speculation import METHODS_WITH_DRAFT_CHECKPOINT
from edgellm.errors import ConfigError

# Not the builder's: precision comes with the checkpoint, and a vocabulary is a folder to it.
NOT_PASSED = {"quantisation", "reduced_vocab_digest", "draft_reduced_vocab_digest"}
OTHER_VALUES: dict[str, Any] = {
    "max_input_len": 2048,
    "max_batch_size": 3,
    "max_kv_cache_capacity": 5120,
    "max_verify_tree_size": 16,
    "max_draft_tree_size": 15,
    "min_image_tokens": 8,
    "max_image_tokens": 2048,
    "max_image_tokens_per_image": 600,
    "min_time_steps": 50,
    "max_time_steps": 3000,
    "min_code_len": 2,
    "opt_code_len": 200,
    "max_code_len": 1000,
    "max_lora_rank": 64,
    "dense": "fp16",
    "int4_gemm_plugin_version": 1,
    "fp8_embedding": True,
    "tree_base": True,
}
RANDOM_PROFILES = 300


def accepted(profile: BuildProfile, *, has_draft: bool | None = None) -> bool:
    own_draft = profile.spec_type in METHODS_WITH_DRAFT_CHECKPOINT
    try:
        check_profile(profile, has_draft=own_draft if has_draft is None else has_draft)
    except ConfigError:
        return False
    return True


def profiles() -> list[BuildProfile]:
    """Every option alone with every method, and many together."""
    assert {entry.name for entry in fields(BuildProfile)} == {*OTHER_VALUES, "spec_type", *NOT_PASSED}
    found = [BuildProfile(spec_type=method) for method in SPEC_TYPES]
    for name, value in OTHER_VALUES.items():
        found += [replace(BuildProfile(spec_type=method), **{name: value}) for method in SPEC_TYPES]
    chosen = random.Random(11)
    for _ in range(RANDOM_PROFILES):
        names = [name for name in OTHER_VALUES if chosen.random() < 0.5]
        found.append(BuildProfile(spec_type=chosen.choice(SPEC_TYPES), **{name: OTHER_VALUES[name] for name in names}))
    return found


def test_both_sides_of_every_option_are_built_for() -> None:
    kept = [profile for profile in profiles() if accepted(profile)]
    for name, value in OTHER_VALUES.items():
        for side in (value, getattr(BuildProfile(), name)):
            assert any(getattr(profile, name) == side for profile in kept), (name, side)
    assert {profile.spec_type for profile in kept} == set(SPEC_TYPES)


def folders(profile: BuildProfile, number: int) -> BuildFolders:
    draft = Path("/checkpoints/draft") if profile.spec_type in METHODS_WITH_DRAFT_CHECKPOINT else None
    return BuildFolders(
        Path("/checkpoints/a model"),
        Path("/store/.staging-x"),
        draft,
        reduced_vocab=Path("/vocabularies/base") if number % 2 else None,
        draft_reduced_vocab=Path("/vocabularies/draft") if number % 3 else None,
        plugin=Path("/plugins/own.so") if number % 5 else None,
    )


def test_nvidias_parser_reads_every_value_of_every_profile(nvidia_binary: NvidiaBinary) -> None:
    asked = profiles()
    places = [folders(profile, number) for number, profile in enumerate(asked)]
    vectors = [builder_arguments(profile, place) for profile, place in zip(asked, places, strict=True)]
    default, *verdicts = ask(
        nvidia_binary.site,
        "builder_arguments",
        [{"argv": ["--model-dir", "m", "--engine-dir", "e"]}, *({"argv": vector} for vector in vectors)],
    )
    assert {name: default[name] for name in BUILDER_DEFAULTS} == BUILDER_DEFAULTS
    for profile, place, verdict in zip(asked, places, verdicts, strict=True):
        assert isinstance(verdict, dict), verdict
        expected = {
            **default,
            **{name: value for name, value in asdict(profile).items() if value is not None and name not in NOT_PASSED},
            "model_dir": "/checkpoints/a model",
            "engine_dir": "/store/.staging-x",
            "draft_model_dir": place.draft and str(place.draft),
            "reduced_vocab_dir": place.reduced_vocab and str(place.reduced_vocab),
            "draft_reduced_vocab_dir": place.draft_reduced_vocab and str(place.draft_reduced_vocab),
            "plugin_path": place.plugin and str(place.plugin),
        }
        assert verdict == expected


def test_a_profile_is_accepted_exactly_where_the_builder_would_start(
    nvidia_binary: NvidiaBinary, tmp_path: Path
) -> None:
    model = write_files(tmp_path / "model", {"config.json": {"model_type": "qwen3", "hidden_size": 64}})
    draft = write_files(tmp_path / "draft", {"config.json": {"model_type": "qwen3", "hidden_size": 64}})
    asked, cases = profiles(), []
    for number, profile in enumerate(asked):
        reduced = number % 2 == 0
        asked[number] = profile = replace(profile, reduced_vocab_digest="0" * 64 if reduced else None)
        place = BuildFolders(
            model,
            tmp_path / "engine",
            draft if profile.spec_type in METHODS_WITH_DRAFT_CHECKPOINT else None,
            reduced_vocab=tmp_path if reduced else None,
        )
        cases.append({"argv": builder_arguments(profile, place)})
    verdicts = ask(nvidia_binary.site, "build_plan", cases)
    for profile, verdict in zip(asked, verdicts, strict=True):
        assert accepted(profile) == isinstance(verdict, list), (profile, verdict)
        expected = ["llm"] if profile.spec_type == "none" else ["spec-base", "spec-draft"]
        assert verdict == expected or not accepted(profile)
    assert 0 < sum(isinstance(verdict, str) for verdict in verdicts) < len(verdicts)


def test_a_draft_is_passed_exactly_where_the_builder_takes_one(nvidia_binary: NvidiaBinary, tmp_path: Path) -> None:
    model = write_files(tmp_path / "model", {"config.json": {"model_type": "qwen3", "hidden_size": 64}})
    cases, ours = [], []
    for method in (name for name in SPEC_TYPES if name != "none"):
        for draft, reduced in ((None, None), (model, None), (model, model)):
            digest = "0" * 64 if reduced else None
            profile = BuildProfile(spec_type=method, draft_reduced_vocab_digest=digest)
            place = BuildFolders(model, tmp_path / "engine", draft, draft_reduced_vocab=reduced)
            cases.append({"argv": builder_arguments(profile, place)})
            ours.append(accepted(profile, has_draft=draft is not None))
    verdicts = ask(nvidia_binary.site, "build_plan", cases)
    assert ours == [isinstance(verdict, list) for verdict in verdicts]


def test_a_profile_is_refused_exactly_where_the_builder_refuses_its_limits(nvidia_binary: NvidiaBinary) -> None:
    chosen = random.Random(12)
    names = (*BUILDER_DEFAULTS, "max_input_len", "max_batch_size", "max_kv_cache_capacity", "max_lora_rank")
    limits = [{}, *({name: value} for name in names for value in (-1, 0, 1, 4, 513, 9000))]
    limits += [
        {name: chosen.choice((1, 4, 100, 512, 2000)) for name in names if chosen.random() < 0.6}
        for _ in range(RANDOM_PROFILES)
    ]
    # What the builder's command takes for a value that is not passed differs from its own defaults of lengths.
    cases = [{"limits": {**BUILDER_DEFAULTS, **values}} for values in limits]
    verdicts = ask(nvidia_binary.site, "profile_limits", cases)
    for values, verdict in zip(limits, verdicts, strict=True):
        assert accepted(BuildProfile(**values)) == (verdict == ""), (values, verdict)
    assert 0 < verdicts.count("") < len(verdicts)
