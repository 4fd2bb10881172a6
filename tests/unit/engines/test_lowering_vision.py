"""Vision checkpoints on their way into bundles: what is written, and what is refused by the name of its field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.models.bundles import lowered_bundle_of
from tests.models.tiny_vision import VISION_VARIANTS, TinyVisionModel, make_vision_weights, write_vision_checkpoint

from edgellm.engines.bundle import Bundle
from edgellm.engines.lowering import plan_for
from edgellm.engines.source import resolve
from edgellm.engines.visual_part import ImageProcessing
from edgellm.errors import BundleDamagedError, CheckpointError, ModelError, UnsupportedModelError
from edgellm.runtime.load_admission import native_shape

SMOLVLM = VISION_VARIANTS["smolvlm"]


def lowered(model: TinyVisionModel, folder: Path, quantisation: str = "f32") -> Bundle:
    return lowered_bundle_of(write_vision_checkpoint(folder / "model", model), folder / "bundle", quantisation)


@pytest.mark.parametrize("variant", VISION_VARIANTS)
def test_the_tower_is_written_whole(variant: str, tmp_path: Path) -> None:
    bundle = lowered(VISION_VARIANTS[variant], tmp_path)
    assert bundle.model_type == VISION_VARIANTS[variant].model_type
    weights = make_vision_weights(VISION_VARIANTS[variant])
    tower = {name: values for name, values in weights.items() if not name.startswith(("model.text_model.", "lm_head"))}
    reader = gguf.GGUFReader(bundle.directory / "visual" / "visual.gguf")
    assert len(reader.tensors) == len(tower)
    stored = sorted(np.array(tensor.data).ravel().tobytes() for tensor in reader.tensors)
    assert stored == sorted(values.ravel().tobytes() for values in tower.values())
    decoder = gguf.GGUFReader(bundle.directory / "llm.gguf")
    assert not any(tensor.name.startswith(("v.", "mm.")) for tensor in decoder.tensors)


@pytest.mark.parametrize(("quantisation", "kind"), [("f32", "F32"), ("f16", "F16"), ("q8_0", "F16"), ("q4_0", "F16")])
def test_matrices_of_the_tower_are_floats(quantisation: str, kind: str, tmp_path: Path) -> None:
    bundle = lowered(SMOLVLM, tmp_path, quantisation)
    kinds = {
        tensor.name: tensor.tensor_type.name
        for tensor in gguf.GGUFReader(bundle.directory / "visual" / "visual.gguf").tensors
    }
    assert kinds["v.blk.0.ffn_up.weight"] == kinds["mm.model.fc.weight"] == kinds["v.patch_embd.weight"] == kind
    assert kinds["v.position_embd.weight"] == kinds["v.blk.0.ffn_up.bias"] == kinds["v.post_ln.weight"] == "F32"


@pytest.mark.parametrize("variant", VISION_VARIANTS)
def test_a_bundle_says_how_images_are_made_ready(variant: str, tmp_path: Path) -> None:
    model = VISION_VARIANTS[variant]
    processing = ImageProcessing.of_bundle(lowered(model, tmp_path).directory)
    assert processing is not None
    assert (processing.image_size, processing.longest_edge) == (model.image_size, model.longest_edge)
    assert (processing.splits, processing.tokens_per_tile) == (model.splits, model.tokens_per_tile)
    assert (processing.mean, processing.deviation) == ((0.5, 0.4, 0.6), (0.5, 0.25, 0.3))


def test_processing_that_is_left_out_changes_nothing_of_a_pixel(tmp_path: Path) -> None:
    off = {"do_normalize": False, "do_rescale": False, "do_resize": False}
    bundle = lowered(replace(SMOLVLM, overrides={"preprocessor_config.json": off}), tmp_path)
    processing = ImageProcessing.of_bundle(bundle.directory)
    assert processing is not None
    assert (processing.rescale_factor, processing.mean, processing.deviation) == (1.0, (0.0,) * 3, (1.0,) * 3)
    assert not processing.resizes


def test_the_template_of_an_older_processor_wins_over_the_tokenizers(tmp_path: Path) -> None:
    checkpoint = write_vision_checkpoint(tmp_path / "model", SMOLVLM)
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (checkpoint / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    bundle = lowered_bundle_of(checkpoint, tmp_path / "bundle", "f32")
    assert (bundle.directory / "chat_template.jinja").read_text() == template


def test_a_plan_knows_the_memory_of_the_tower(tmp_path: Path) -> None:
    bundle = lowered(SMOLVLM, tmp_path)
    source = resolve(str(tmp_path / "model"), tmp_path / "models", download=False)
    planned, loaded = plan_for(source, "f32").runtime_shape.vision, native_shape(bundle).vision
    assert planned is not None
    assert loaded is not None
    assert replace(planned, model_bytes=0) == replace(loaded, model_bytes=0)
    # The file has its table of tensors beside them.
    assert planned.model_bytes < loaded.model_bytes < planned.model_bytes + 16384


def changed(file: str, **overrides: Any) -> TinyVisionModel:
    return replace(SMOLVLM, overrides={file: {name.replace("__", "."): value for name, value in overrides.items()}})


CONFIG, PREPROCESSOR, PROCESSOR = "config.json", "preprocessor_config.json", "processor_config.json"


@pytest.mark.parametrize(
    ("model", "error", "field"),
    [
        (changed(CONFIG, text_config=None), CheckpointError, "text_config is missing"),
        (changed(CONFIG, vision_config=None), CheckpointError, "vision_config is missing"),
        (changed(CONFIG, vision_config=[1]), CheckpointError, "vision_config is not an object"),
        (changed(CONFIG, text_config__model_type="gpt2"), UnsupportedModelError, "text_config.model_type 'gpt2'"),
        (changed(CONFIG, text_config__hidden_size=-1), CheckpointError, "text_config.hidden_size is not"),
        (changed(CONFIG, vision_config__hidden_act="relu"), UnsupportedModelError, "vision_config.hidden_act 'relu'"),
        (changed(CONFIG, vision_config__num_channels=1), UnsupportedModelError, "vision_config.num_channels"),
        (changed(CONFIG, vision_config__patch_size=7), CheckpointError, r"vision_config.patch_size \(7\) does not"),
        (changed(CONFIG, vision_config__num_attention_heads=5), CheckpointError, "vision_config.num_attention_heads"),
        (changed(CONFIG, vision_config__hidden_size="x"), CheckpointError, "vision_config.hidden_size is not"),
        (changed(CONFIG, vision_config__hidden_size=24), CheckpointError, "vision_model.* its shape is"),
        (
            changed(CONFIG, vision_config__num_hidden_layers=3),
            CheckpointError,
            "layers.2.layer_norm1.weight is missing",
        ),
        (changed(CONFIG, vision_config__num_hidden_layers=1), UnsupportedModelError, "layers.1.* is not part of"),
        (changed(CONFIG, vision_config__layer_norm_eps=0), CheckpointError, "vision_config.layer_norm_eps is not"),
        (changed(CONFIG, scale_factor=3), CheckpointError, r"scale_factor \(3\) does not divide"),
        (changed(CONFIG, scale_factor=1), CheckpointError, "image_seq_len is 4, and the vision tower makes 16"),
        (changed(CONFIG, image_token_id=None), CheckpointError, "image_token_id is missing"),
        (changed(CONFIG, image_token_id=10**9), CheckpointError, "image_token_id is no token id"),
        (changed(CONFIG, image_token_id=9), CheckpointError, "token <image> does not have the id 9"),
        (changed(PREPROCESSOR, image_processor_type="X"), UnsupportedModelError, "image_processor_type 'X'"),
        (changed(PREPROCESSOR, max_image_size={"longest_edge": 64}), UnsupportedModelError, "max_image_size.longest"),
        (changed(PREPROCESSOR, size={"longest_edge": 9000}), UnsupportedModelError, "size.longest_edge .9000. makes"),
        (changed(PREPROCESSOR, size={"longest_edge": "x"}), CheckpointError, "size.longest_edge is not"),
        (changed(PREPROCESSOR, resample=9), CheckpointError, "resample is not a number from 0 to 5"),
        (changed(PREPROCESSOR, image_mean=[1, 2]), CheckpointError, "image_mean does not have 3"),
        (changed(PREPROCESSOR, image_std=[0, 1, 1]), CheckpointError, "image_std is not above 0"),
        (changed(PREPROCESSOR, image_std="x"), CheckpointError, "image_std is not a list of numbers"),
        (changed(PREPROCESSOR, do_image_splitting="yes"), CheckpointError, "do_image_splitting is neither"),
        (changed(PREPROCESSOR, rescale_factor=-1), CheckpointError, "rescale_factor is not"),
        (changed(PROCESSOR, image_seq_len=5), CheckpointError, "image_seq_len is 5, and the vision tower makes 4"),
    ],
    ids=lambda value: value.replace(" ", "-")[:60] if isinstance(value, str) else "",
)
def test_what_the_runtime_lacks_is_refused_by_field(
    model: TinyVisionModel, error: type[ModelError], field: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=field):
        lowered(model, tmp_path)


def test_a_checkpoint_without_its_processor_is_refused(tmp_path: Path) -> None:
    checkpoint = write_vision_checkpoint(tmp_path / "model", SMOLVLM)
    (checkpoint / PREPROCESSOR).unlink()
    with pytest.raises(CheckpointError, match=r"no preprocessor_config\.json"):
        lowered_bundle_of(checkpoint, tmp_path / "bundle")


def test_a_missing_tensor_of_the_connector_is_named(tmp_path: Path) -> None:
    checkpoint = write_vision_checkpoint(tmp_path / "model", SMOLVLM)
    raw = (checkpoint / "model.safetensors").read_bytes()
    damaged = raw.replace(b"model.connector.modality_projection", b"model.connector.modality_projectioX", 1)
    (checkpoint / "model.safetensors").write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"modality_projection\.proj\.weight is missing"):
        lowered_bundle_of(checkpoint, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"image_size": 0}, "image_size"),
        ({"longest_edge": 10**8}, "longest_edge is too large"),
        ({"splits": None}, "splits is missing"),
        ({"resample": 7}, "resample"),
        ({"mean": [1]}, "mean is not a list of 3"),
        ({"deviation": ["x", 1, 1]}, "deviation"),
        ({"tokens_per_tile": "4"}, "tokens_per_tile"),
        ({"image_token_id": -1}, "image_token_id"),
        ({"image_token_id": None}, "image_token_id"),
    ],
)
def test_a_damaged_visual_part_is_refused_by_file_and_field(
    changes: Mapping[str, Any], field: str, tmp_path: Path
) -> None:
    directory = lowered(SMOLVLM, tmp_path).directory
    path = directory / "visual" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(BundleDamagedError, match=rf"visual/config.json: {field}.*the bundle is damaged"):
        Bundle.load(directory)


@pytest.mark.parametrize("name", ["config.json", "visual.gguf"])
def test_a_file_that_went_from_the_visual_part_is_named(name: str, tmp_path: Path) -> None:
    directory = lowered(SMOLVLM, tmp_path).directory
    (directory / "visual" / name).unlink()
    with pytest.raises(BundleDamagedError, match=f"visual/{name}"):
        Bundle.load(directory)
