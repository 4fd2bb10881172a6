from __future__ import annotations

from dataclasses import fields, replace

import pytest

from edgellm.engines.build_profile import KEYED_BY_NATIVE, NOT_KEYED_BY_TENSORRT, BuildProfile
from edgellm.engines.engine_key import Difference, EngineKey
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.errors import ConfigError

ORIN = {
    "wheel_version": "0.11.0",
    "payload_id": "jetson-orin-jp72-cu13-sm87",
    "tensorrt_version": "10.16.0.72",
    "cuda_runtime": "libcudart.so.13",
    "sm": 87,
    "l4t": "R39.2",
}
OTHER = {
    "wheel_version": "0.11.1",
    "payload_id": "jetson-thor-jp72-cu13-sm110",
    "tensorrt_version": "10.16.1.11",
    "cuda_runtime": "libcudart.so.14",
    "sm": 110,
    "l4t": "R38.4",
}
# Another value for each field of a profile; a new field without one fails the test below.
OTHER_PROFILE = {
    "max_input_len": 1,
    "max_batch_size": 2,
    "max_kv_cache_capacity": 3,
    "quantisation": "q4_0",
    "spec_type": "eagle3",
    "tree_base": True,
    "max_verify_tree_size": 7,
    "max_draft_tree_size": 8,
    "min_image_tokens": 9,
    "max_image_tokens": 10,
    "max_image_tokens_per_image": 11,
    "min_time_steps": 12,
    "max_time_steps": 13,
    "min_code_len": 14,
    "opt_code_len": 15,
    "max_code_len": 16,
    "max_lora_rank": 17,
    "dense": "fp16",
    "int4_gemm_plugin_version": 1,
    "fp8_embedding": True,
    "reduced_vocab_digest": "a",
    "draft_reduced_vocab_digest": "b",
}


def tensorrt(**changes: object) -> PlatformFingerprint:
    return PlatformFingerprint.tensorrt(**{**ORIN, **changes})  # type: ignore[arg-type]


def key(
    fingerprint: PlatformFingerprint | None = None,
    profile: BuildProfile | None = None,
    checkpoint: str = "c",
    draft: str | None = None,
) -> EngineKey:
    return EngineKey.of(fingerprint or PlatformFingerprint.native(), profile or BuildProfile(), checkpoint, draft)


def test_equal_inputs_are_one_key_and_one_digest() -> None:
    assert key() == key()
    assert key().digest == key().digest
    assert key().short == key().digest[:16]
    assert key().differences(key()) == ()


def test_the_digest_is_the_same_in_every_version_of_python_and_edgellm() -> None:
    """Bundles that are on boards must be found again: what changes this must raise KEY_VERSION."""
    fixed = EngineKey({"key_version": 2, "runtime": "native", "checkpoint": "é", "draft": None, "profile.flag": True})
    assert fixed.digest == "1ad3583b8a5d05f7b95d5e63d7cfe520aba167d5cd6919259b11241f03ea1580"


@pytest.mark.parametrize("name", [field.name for field in fields(BuildProfile)])
def test_every_profile_value_is_keyed_where_it_decides_the_files(name: str) -> None:
    other = replace(BuildProfile(), **{name: OTHER_PROFILE[name]})
    assert getattr(other, name) != getattr(BuildProfile(), name)
    native, engine = key(), key(tensorrt())
    keyed_natively = native != key(profile=other)
    keyed_by_tensorrt = engine != key(tensorrt(), other)
    assert keyed_natively == (name in KEYED_BY_NATIVE)
    assert keyed_by_tensorrt == (name not in NOT_KEYED_BY_TENSORRT)
    assert keyed_natively or keyed_by_tensorrt


@pytest.mark.parametrize("name", list(ORIN))
def test_every_value_that_a_loader_matches_is_keyed(name: str) -> None:
    changed = key(tensorrt(**{name: OTHER[name]}))
    (difference,) = key(tensorrt()).differences(changed)
    assert difference == Difference(f"platform.{name}", ORIN[name], OTHER[name])  # type: ignore[arg-type]


def test_patch_levels_and_our_own_version_are_recorded_and_not_keyed() -> None:
    assert key(tensorrt(recorded={"l4t_patch": "R39.2.1"})) == key(tensorrt(recorded={"l4t_patch": "R39.2.2"}))
    assert tensorrt(recorded={"driver": "595.1"}).recorded["driver"] == "595.1"
    assert "edgellm_version" in PlatformFingerprint.native().recorded
    assert "platform.edgellm_version" not in key().inputs


def test_checkpoint_draft_and_lowering_version_are_keyed() -> None:
    assert [difference.name for difference in key().differences(key(checkpoint="d"))] == ["checkpoint"]
    assert [difference.name for difference in key().differences(key(draft="d"))] == ["draft"]
    upgraded = key(PlatformFingerprint.native(lowering_version=2))
    assert str(key().differences(upgraded)[0]) == "platform.lowering_version: 1 here, 2 there"


def test_differences_between_runtimes_name_what_one_of_them_lacks() -> None:
    names = {difference.name: difference for difference in key().differences(key(tensorrt()))}
    assert names["runtime"] == Difference("runtime", "native", "tensorrt")
    assert names["platform.lowering_version"].theirs is None
    assert names["platform.sm"] == Difference("platform.sm", None, 87)


def test_another_platform_by_its_values() -> None:
    engine = key(tensorrt())
    assert engine.as_of({"sm": "110", "l4t": "R38.4"}) == key(tensorrt(sm=110, l4t="R38.4"))
    with pytest.raises(ConfigError, match="sm must be a whole number, not 'orin'"):
        engine.as_of({"sm": "orin"})
    with pytest.raises(ConfigError, match="'driver' is no platform value of this engine; it has wheel_version"):
        engine.as_of({"driver": "1"})


def test_no_input_is_a_path() -> None:
    for value in key(tensorrt()).inputs.values():
        assert "/" not in str(value)
