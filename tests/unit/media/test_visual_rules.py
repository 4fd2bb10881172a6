"""Rules of visual engines: families, limits and budgets, on both sides, from the files that bundles have."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from edgellm.errors import RequestError
from edgellm.media.visual_budget import VisualBudget
from edgellm.media.visual_limits import VisualLimits, VisualRules, video_family, visual_limits

PLACE = "messages[0].content[0]"
BUILDER = {"min_image_tokens": 4, "max_image_tokens": 1024, "max_image_tokens_per_image": 512}
# The files of a bundle's visual folder, as builds of each family leave them.
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2_vl": {
        "config.json": {"model_type": "qwen2_vl", "builder_config": BUILDER},
        "preprocessor_config.json": {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2},
    },
    "qwen2_5_vl": {
        "config.json": {"model_type": "qwen2_5_vl", "builder_config": {**BUILDER, "max_cu_seqlen_groups": 40}},
        "preprocessor_config.json": {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2},
    },
    "qwen3_vl": {
        "config.json": {"model_type": "qwen3_vl", "builder_config": BUILDER},
        "preprocessor_config.json": {"image_processor": {"patch_size": 16, "merge_size": 2}},
    },
    "qwen3_omni_vision": {
        "config.json": {"model_type": "qwen3_omni_vision_encoder", "builder_config": BUILDER},
        "preprocessor_config.json": {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2},
    },
    "cosmos3_edge_vision": {
        "config.json": {"model_type": "cosmos3_edge_vision", "builder_config": BUILDER},
        "preprocessor_config.json": {"patch_size": 16, "merge_size": 2, "max_image_tokens": 300},
        "processor_config.json": {"video_processor": {"max_video_frame_tokens": 64}},
    },
    "internvl": {
        "config.json": {
            "model_type": "internvl_vision",
            "builder_config": BUILDER,
            "downsample_ratio": 0.5,
            "vision_config": {"image_size": [448, 448], "patch_size": [14, 14]},
        },
    },
    "muse": {
        "config.json": {"model_type": "muse_glimmer_vision", "builder_config": BUILDER},
        "processor_config.json": {"video_processor": {"max_video_frame_tokens": 128}},
    },
    "nemotron": {
        "config.json": {
            "model_type": "nemotron_omni_vision",
            "builder_config": BUILDER,
            "video_pruning_rate": 0.5,
            "video_temporal_patch_size": 2,
            "video_target_num_patches": 1024,
            "downsample_ratio": 0.5,
        },
    },
}


def visual_folder(folder: Path, files: dict[str, Any], *, has_engine: bool = True) -> Path:
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    if has_engine:
        (folder / "visual.engine").write_bytes(b"")
    return folder


def limits_of(folder: Path, family: str) -> VisualLimits:
    limits = visual_limits(visual_folder(folder, FAMILIES[family]))
    assert limits is not None
    return limits


@pytest.mark.parametrize(
    ("model_type", "family"),
    [
        ("internvl", "internvl"),
        ("internvl_chat_vision", "internvl"),
        ("muse_glimmer_vision", "muse"),
        ("muse_glimmer_vision_2", None),
        ("nemotron_omni_vision", "nemotron"),
        ("nemotron_audio", None),
        ("qwen2_vl", "qwen"),
        ("qwen2_5_vl", "qwen"),
        ("qwen3_vl_moe", "qwen"),
        ("qwen3_5_vision", "qwen"),
        ("qwen3_omni_vision_encoder", "qwen"),
        ("qwen3_omni_audio_encoder", None),
        ("qwen3_omni_code2wav", None),
        ("qwen3_asr", None),
        ("cosmos3_edge_vision", "qwen"),
        ("gemma4_vision", None),
        ("my_qwen2_vl", None),
        ("", None),
    ],
)
def test_the_type_of_the_visual_engine_tells_its_family(tmp_path: Path, model_type: str, family: str | None) -> None:
    folder = visual_folder(tmp_path, {"config.json": {"model_type": model_type}})
    assert video_family(folder) == family
    rules = VisualRules.of_folder(folder)
    rules.check(["image", "image", "audio"], PLACE)  # without a video nobody asks
    if family is None:
        with pytest.raises(RequestError) as refused:
            rules.check(["video"], PLACE)
        assert refused.value.param == PLACE
        assert repr(model_type) in str(refused.value)
        assert "InternVL, Muse Glimmer, Nemotron-Omni, Qwen-VL and Cosmos3-Edge" in str(refused.value)
    else:
        rules.check(["video"], PLACE)


def test_no_engine_or_no_support_is_no_family(tmp_path: Path) -> None:
    config = {"model_type": "qwen2_vl"}
    assert video_family(visual_folder(tmp_path, {"config.json": config}, has_engine=False)) is None
    without = {"model_type": "nemotron_omni_vision", "supports_video": False}
    assert video_family(visual_folder(tmp_path, {"config.json": without})) is None
    assert video_family(visual_folder(tmp_path, {"config.json": {**without, "supports_video": True}})) == "nemotron"


@pytest.mark.parametrize(
    ("kinds", "videos", "images"),
    [(["video", "video"], 2, 0), (["image", "video"], 1, 1), (["video"] * 3 + ["image"], 3, 1)],
)
def test_nemotron_takes_one_video_and_no_image(tmp_path: Path, kinds: list[str], videos: int, images: int) -> None:
    rules = VisualRules.of_folder(visual_folder(tmp_path, FAMILIES["nemotron"]))
    rules.check(["video", "audio"], PLACE)
    with pytest.raises(RequestError, match=f"{videos} videos and {images} images"):
        rules.check(kinds, PLACE)


def test_limits_are_read_from_the_files_of_each_family(tmp_path: Path) -> None:
    def read(family: str) -> VisualLimits:
        folder = tmp_path / family
        folder.mkdir()
        return limits_of(folder, family)

    qwen = read("qwen2_5_vl")
    assert (qwen.patch_size, qwen.merge_size, qwen.temporal_patch_size, qwen.max_cu_seqlen_groups) == (14, 2, 2, 40)
    assert (qwen.min_image_tokens, qwen.max_image_tokens, qwen.max_image_tokens_per_image) == (4, 1024, 512)
    assert read("qwen3_vl").patch_size == 16  # of a nested image_processor
    cosmos = read("cosmos3_edge_vision")
    assert (cosmos.temporal_patch_size, cosmos.checkpoint_max_image_tokens, cosmos.max_video_frame_tokens) == (
        1,
        300,
        64,
    )
    internvl = read("internvl")
    assert (internvl.tile_size, internvl.tile_patch_size) == (448, 14)
    nemotron = read("nemotron")
    assert (nemotron.pruning_rate, nemotron.video_target_patches, nemotron.downsample_ratio) == (0.5, 1024, 0.5)


def test_what_files_do_not_say_has_its_default(tmp_path: Path) -> None:
    limits = visual_limits(visual_folder(tmp_path, {"config.json": {"builder_config": {"max_image_tokens": 9}}}))
    assert limits == VisualLimits(model_type="", max_image_tokens=9)
    assert limits is not None
    assert (limits.min_image_tokens, limits.temporal_patch_size, limits.video_target_patches) == (1, 2, 1024)
    numbers = {"image_size": 448, "patch_size": {"height": 14}}
    other = {"builder_config": {"max_image_tokens": 9}, "vision_config": numbers}
    limits = visual_limits(visual_folder(tmp_path, {"config.json": other}))
    assert limits is not None
    assert (limits.tile_size, limits.tile_patch_size) == (0, 0)  # of lists alone


@pytest.mark.parametrize(
    "config",
    ["no json", "[]", {}, {"builder_config": {}}, {"builder_config": {"max_image_tokens": 0}}, {"builder_config": 5}],
)
def test_without_a_number_of_tokens_there_are_no_limits(tmp_path: Path, config: Any) -> None:
    assert visual_limits(visual_folder(tmp_path, {"config.json": config})) is None
    assert visual_limits(tmp_path / "missing") is None


@pytest.mark.parametrize("damaged", ["preprocessor_config.json", "processor_config.json"])
def test_a_damaged_side_file_is_as_if_it_were_not_there(tmp_path: Path, damaged: str) -> None:
    files = {**FAMILIES["cosmos3_edge_vision"], damaged: "{"}
    assert visual_limits(visual_folder(tmp_path, files)) is not None


@pytest.mark.parametrize(
    ("family", "group_frames", "group_tokens"),
    [
        ("qwen2_vl", 2, 16 * 9),  # 448 x 252 in units of 28
        ("qwen3_vl", 2, 14 * 8),  # in units of 32
        ("cosmos3_edge_vision", 1, 64),  # by what a frame may have
        ("internvl", 1, 256),
        ("muse", 1, 128),
        ("nemotron", 2, 128),  # half of them pruned
    ],
)
def test_frames_cost_what_their_family_makes_of_them(
    tmp_path: Path, family: str, group_frames: int, group_tokens: int
) -> None:
    rules = VisualRules.of_folder(visual_folder(tmp_path, FAMILIES[family]))
    assert rules.family is not None
    assert rules.limits is not None
    cost = VisualBudget(rules.limits, rules.family, 0).frame_cost(448, 252)
    assert (cost.group_frames, cost.group_tokens) == (group_frames, group_tokens)


def test_a_video_gets_as_many_frames_as_the_engine_has_tokens_for(tmp_path: Path) -> None:
    limits = limits_of(tmp_path, "internvl")  # 1024 tokens: four frames of 256
    budget = VisualBudget(limits, "internvl", 0)
    assert budget.frames_for(9, 640, 480, place=PLACE) == 4
    assert budget.tokens_left == 0
    with pytest.raises(
        RequestError, match="needs at least 256 visual tokens, and 0 remain of the engine's 1024"
    ) as refused:
        budget.frames_for(1, 640, 480, place=PLACE)
    assert "max_image_tokens" in str(refused.value)
    assert VisualBudget(limits, "internvl", 0).frames_for(4, 1, 1, place=PLACE, may_be_fewer=False) == 4
    with pytest.raises(RequestError, match="needs at least 1280 visual tokens"):
        VisualBudget(limits, "internvl", 0).frames_for(5, 1, 1, place=PLACE, may_be_fewer=False)


def test_images_are_reserved_wherever_they_stand_and_videos_share_the_rest(tmp_path: Path) -> None:
    limits = limits_of(tmp_path, "internvl")
    budget = VisualBudget(limits, "internvl", image_count=1)  # of 512 tokens at most
    assert budget.tokens_left == 512
    assert [budget.frames_for(wanted, 9, 9, place=PLACE) for wanted in (1, 9)] == [1, 1]
    budget.check(PLACE)


def test_the_order_of_images_among_videos_makes_no_difference(tmp_path: Path) -> None:
    limits = limits_of(tmp_path, "internvl")
    results = set()
    for order in itertools.permutations(["image", "video", "video"]):
        budget = VisualBudget(limits, "internvl", order.count("image"))
        frames = [budget.frames_for(1, 9, 9, place=PLACE) for kind in order if kind == "video"]
        results.add((tuple(frames), budget.tokens_left))
    assert results == {((1, 1), 0)}


def test_more_images_than_the_engine_has_tokens_for_are_refused_with_its_number(tmp_path: Path) -> None:
    limits = limits_of(tmp_path, "qwen2_vl")
    VisualBudget(limits, "qwen", 2).check(PLACE)
    with pytest.raises(RequestError, match="may have 1536 visual tokens; the engine takes 1024") as refused:
        VisualBudget(limits, "qwen", 3).check(PLACE)
    assert refused.value.param == PLACE


def test_groups_are_counted_but_for_internvl(tmp_path: Path) -> None:
    files = {**FAMILIES["qwen2_5_vl"]}
    files["config.json"] = {**files["config.json"], "builder_config": {**BUILDER, "max_cu_seqlen_groups": 2}}
    limits = visual_limits(visual_folder(tmp_path, files))
    assert limits is not None
    budget = VisualBudget(limits, "qwen", 0)
    assert budget.frames_for(100, 28, 28, place=PLACE) == 4  # two groups of two
    with pytest.raises(RequestError, match="takes fewer images and videos at a time"):
        VisualBudget(limits, "qwen", 3).check(PLACE)
    assert VisualBudget(limits, "internvl", 3).groups_left is None


def test_a_request_with_too_few_tokens_is_told_both_numbers_and_what_to_do(tmp_path: Path) -> None:
    files = {**FAMILIES["nemotron"]}
    files["config.json"] = {**files["config.json"], "builder_config": {**BUILDER, "min_image_tokens": 512}}
    limits = visual_limits(visual_folder(tmp_path, files))
    assert limits is not None
    enough, few = VisualBudget(limits, "nemotron", 0), VisualBudget(limits, "nemotron", 0)
    enough.frames_for(3, 640, 480, place=PLACE)  # two tubelets of 256, before they are pruned
    enough.check(PLACE)
    few.frames_for(2, 640, 480, place=PLACE)
    with pytest.raises(RequestError, match="have 256 visual tokens, and the engine takes no fewer than 512") as refused:
        few.check(PLACE)
    assert "min_image_tokens" in str(refused.value)
