from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.models.pooling import write_pooling
from tests.models.safetensors_writer import FloatArray, write_safetensors
from tests.models.tiny_checkpoints import VARIANTS, TinyModel, make_weights, write_checkpoint
from tests.models.tiny_gguf import gguf_weights, write_gguf
from tests.unit.engines.vocabulary_models import sample_texts, sentencepiece_model
from tokenizers import Tokenizer

from edgellm.engines.bundle import Bundle
from edgellm.engines.gguf_file import TensorType, read_gguf
from edgellm.engines.lowering import model_file, plan_for
from edgellm.engines.lowering.quantise import stored_type
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.engines.tokenizer_json import tokenizer_files
from edgellm.errors import CheckpointError, EdgeLLMError, UnsupportedModelError
from edgellm.runtime.load_admission import native_shape

LLAMA = VARIANTS["llama"]
# Passes the library's checks when it is read, and panics when it is used.
PANICKING_POST_PROCESSOR = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<nowhere>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {},
}


def lower(checkpoint: Path, quantisation: str = "f32") -> Bundle:
    directory = checkpoint.parent / f"{checkpoint.name}-{quantisation}"
    directory.mkdir()
    source = ModelSource(SourceKind.SAFETENSORS, checkpoint, checkpoint.name)
    return plan_for(source, quantisation).write(directory, lambda progress: None)


def written(tmp_path: Path, model: TinyModel = LLAMA) -> Path:
    return write_checkpoint(tmp_path / "tiny", model)


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def tensors_of(bundle: Bundle) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(bundle.model_file).tensors}


def metadata_of(path: Path) -> dict[str, Any]:
    return dict(read_gguf(path).metadata)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_are_those_of_an_independent_writer(tmp_path: Path, variant: str) -> None:
    model = VARIANTS[variant]
    bundle = lower(written(tmp_path, model))
    found = tensors_of(bundle)
    expected = gguf_weights(model)
    assert set(found) - {"rope_freqs.weight"} == set(expected)
    precision = {"f32": 0.0, "f16": 2.0**-11, "bf16": 2.0**-8}[model.dtype]
    for name, values in expected.items():
        assert found[name].tensor_type == gguf.GGMLQuantizationType.F32
        np.testing.assert_allclose(found[name].data, values, rtol=precision, atol=precision * 1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_metadata_agrees_with_an_independent_writer(tmp_path: Path, variant: str) -> None:
    model = VARIANTS[variant]
    ours = metadata_of(lower(written(tmp_path, model)).model_file)
    theirs = metadata_of(write_gguf(tmp_path / "theirs.gguf", model))
    for key in ("general.name", "tokenizer.chat_template"):
        ours[key] = theirs[key]
    tokens = theirs["tokenizer.ggml.tokens"]
    tokens[model.token_count :] = [f"[PAD{index}]" for index in range(model.token_count, model.vocab_size)]
    assert {key: ours.get(key) for key in theirs} == theirs


@pytest.mark.parametrize("quantisation", ["f16", "q8_0", "q4_0", "q4_1"])
@pytest.mark.parametrize("variant", ["llama", "qwen2", "qwen3-untied"])
def test_matrices_are_quantised_and_vectors_are_not(tmp_path: Path, variant: str, quantisation: str) -> None:
    model = VARIANTS[variant]
    bundle = lower(written(tmp_path, model), quantisation)
    for name, tensor in tensors_of(bundle).items():
        values = gguf_weights(model)[name]
        kind = stored_type(name, values.shape, quantisation)
        assert tensor.tensor_type.value == kind.value
        if kind is TensorType.F32:
            np.testing.assert_array_equal(tensor.data, values)
        else:
            expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType(kind.value))
            np.testing.assert_array_equal(tensor.data.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize(
    ("name", "shape", "quantisation", "kind"),
    [
        ("blk.0.attn_q.weight", (64, 64), "q8_0", TensorType.Q8_0),
        ("blk.0.attn_q.weight", (64, 48), "q8_0", TensorType.F16),
        ("blk.0.attn_q.weight", (64, 48), "f32", TensorType.F32),
        ("blk.0.attn_q.weight", (64, 64), "q4_1", TensorType.Q4_1),
        ("token_embd.weight", (64, 64), "q4_1", TensorType.Q8_0),
        ("output.weight", (64, 64), "q4_0", TensorType.Q8_0),
        ("token_embd.weight", (64, 64), "f16", TensorType.F16),
        ("blk.0.attn_norm.weight", (64,), "q4_0", TensorType.F32),
    ],
)
def test_the_type_follows_name_and_row_length(
    name: str, shape: tuple[int, ...], quantisation: str, kind: TensorType
) -> None:
    assert stored_type(name, shape, quantisation) is kind


@pytest.mark.parametrize("variant", ["llama", "llama-bf16-sharded", "qwen3"])
def test_small_blocks_give_the_same_file(tmp_path: Path, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = written(tmp_path, VARIANTS[variant])
    whole = lower(checkpoint, "q8_0").model_file.read_bytes()
    monkeypatch.setattr(model_file, "BLOCK_VALUES", 1)
    again = tmp_path / "again"
    again.mkdir()
    source = ModelSource(SourceKind.SAFETENSORS, checkpoint, checkpoint.name)
    assert plan_for(source, "q8_0").write(again, lambda progress: None).model_file.read_bytes() == whole


def test_query_and_key_biases_are_permuted_with_their_rows(tmp_path: Path) -> None:
    model = replace(LLAMA, attention_bias=True)
    checkpoint = written(tmp_path, model)
    weights = {name: values for name, values in make_weights(model).items() if not name.endswith("o_proj.bias")}
    write_safetensors(checkpoint / "model.safetensors", weights, "f32")
    found = tensors_of(lower(checkpoint))
    for name, values in gguf_weights(model).items():
        if name.endswith(".bias") and "attn_output" not in name:
            np.testing.assert_array_equal(found[name].data, values)


def test_a_bias_the_runtime_lacks_is_refused(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, replace(LLAMA, attention_bias=True))
    with pytest.raises(UnsupportedModelError, match=r"tensor model\.layers\.0\.self_attn\.o_proj\.bias is not part"):
        lower(checkpoint)


def test_progress_counts_bytes_up_to_the_whole(tmp_path: Path) -> None:
    checkpoint = written(tmp_path)
    plan = plan_for(ModelSource(SourceKind.SAFETENSORS, checkpoint, "tiny"), "auto")
    seen = []
    directory = tmp_path / "bundle"
    directory.mkdir()
    plan.write(directory, seen.append)
    assert [progress.done_bytes for progress in seen] == sorted({progress.done_bytes for progress in seen})
    assert seen[-1].done_bytes == seen[-1].total_bytes == plan.output_bytes
    assert seen[-1].fraction == 1.0


def test_rows_beyond_the_tokenizer_stay_as_unused_tokens(tmp_path: Path) -> None:
    model = VARIANTS["qwen2"]
    bundle = lower(written(tmp_path, model))
    texts = metadata_of(bundle.model_file)["tokenizer.ggml.tokens"]
    assert len(texts) == bundle.vocab_size == model.vocab_size
    assert texts[model.token_count :] == [f"[PAD{index}]" for index in range(model.token_count, model.vocab_size)]


def test_tied_embeddings_win_over_a_head_that_lies_beside_them(tmp_path: Path) -> None:
    checkpoint = written(tmp_path)
    weights = make_weights(LLAMA)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + 1
    write_safetensors(checkpoint / "model.safetensors", weights, "f32")
    assert "output.weight" not in tensors_of(lower(checkpoint))


@pytest.mark.parametrize(
    ("tied", "quantisation", "shared"),
    [(True, "q8_0", True), (True, "f16", False), (False, "q8_0", False)],
)
def test_the_plan_and_its_bundle_agree_on_an_embedding_that_is_the_output_matrix_too(
    tmp_path: Path, tied: bool, quantisation: str, shared: bool
) -> None:
    model = replace(LLAMA, tied=tied)
    checkpoint = written(tmp_path, model)
    source = ModelSource(SourceKind.SAFETENSORS, checkpoint, checkpoint.name)
    planned_bytes = plan_for(source, quantisation).runtime_shape.shared_embedding_bytes
    bundle = lower(checkpoint, quantisation)
    assert native_shape(bundle).shared_embedding_bytes == planned_bytes
    assert planned_bytes == (tensors_of(bundle)["token_embd.weight"].n_bytes if shared else 0)
    gguf_source = ModelSource(SourceKind.GGUF, bundle.model_file, "tiny")
    assert plan_for(gguf_source, "auto").runtime_shape.shared_embedding_bytes == planned_bytes


@pytest.mark.parametrize("tied", [True, False])
def test_a_silent_config_is_tied_when_there_is_no_head(tmp_path: Path, tied: bool) -> None:
    checkpoint = written(tmp_path, replace(LLAMA, tied=tied))
    edit(checkpoint / "config.json", lambda config: config.pop("tie_word_embeddings"))
    assert ("output.weight" in tensors_of(lower(checkpoint))) is not tied


def bare(weights: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """As a decoder alone has them: without a head, and without the name of the model around it."""
    return {name.removeprefix("model."): value for name, value in weights.items() if name != "lm_head.weight"}


@pytest.mark.parametrize("variant", ["llama", "qwen3", "qwen2"])
def test_a_decoder_that_was_saved_alone_gives_the_same_file(tmp_path: Path, variant: str) -> None:
    model = replace(VARIANTS[variant], tied=True, shard_count=1)
    whole, alone = write_checkpoint(tmp_path / "whole", model), write_checkpoint(tmp_path / "alone", model)
    write_safetensors(alone / "model.safetensors", bare(make_weights(model)), model.dtype)
    expected, found = tensors_of(lower(whole)), tensors_of(lower(alone))
    assert list(found) == list(expected)
    assert all(np.array_equal(found[name].data, expected[name].data) for name in expected)


def test_a_decoder_without_its_head_embeds_and_does_not_generate(tmp_path: Path) -> None:
    model = replace(LLAMA, tied=False)
    checkpoint = written(tmp_path, model)
    write_safetensors(checkpoint / "model.safetensors", bare(make_weights(model)), "f32")
    with pytest.raises(CheckpointError, match=r"tensor lm_head\.weight is missing"):
        plan_for(ModelSource(SourceKind.SAFETENSORS, checkpoint, "tiny"), "f32")
    write_pooling(checkpoint, model.hidden_size)
    assert "output.weight" not in tensors_of(lower(checkpoint))


def test_a_checkpoint_without_a_fast_tokenizer_is_not_for_this_runtime(tmp_path: Path) -> None:
    checkpoint = written(tmp_path)
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"no tokenizer\.json, which the native runtime needs"):
        lower(checkpoint)


def test_buffers_of_old_checkpoints_are_passed_over(tmp_path: Path) -> None:
    checkpoint = written(tmp_path)
    weights: dict[str, FloatArray] = make_weights(LLAMA)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(16, np.float32)
    write_safetensors(checkpoint / "model.safetensors", weights, "f32")
    lower(checkpoint)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda weights: weights.pop("model.norm.weight"), "tensor model.norm.weight is missing"),
        (
            lambda weights: weights.update({"model.norm.weight": np.ones(7, np.float32)}),
            r"tensor model.norm.weight: its shape is \[7\], config.json asks for \[128\]",
        ),
        (
            lambda weights: weights.update({"model.norm.weight": np.full(128, np.nan, np.float32)}),
            "tensor model.norm.weight: it holds values that are not finite",
        ),
    ],
)
def test_wrong_weights_are_refused_by_tensor(
    tmp_path: Path, change: Callable[[dict[str, FloatArray]], object], reason: str
) -> None:
    checkpoint = written(tmp_path)
    weights = make_weights(LLAMA)
    change(weights)
    write_safetensors(checkpoint / "model.safetensors", weights, "f32")
    with pytest.raises(CheckpointError, match=reason):
        lower(checkpoint)


def test_a_foreign_tensor_is_refused(tmp_path: Path) -> None:
    checkpoint = written(tmp_path)
    weights = make_weights(LLAMA)
    weights["model.layers.0.mlp.experts.0.weight"] = np.ones((4, 4), np.float32)
    write_safetensors(checkpoint / "model.safetensors", weights, "f32")
    with pytest.raises(UnsupportedModelError, match=r"model\.layers\.0\.mlp\.experts\.0\.weight is not part"):
        lower(checkpoint)


@pytest.mark.parametrize("quantisation", ["f16", "q8_0", "q4_1"])
def test_values_beyond_f16_are_refused_with_the_remedy(tmp_path: Path, quantisation: str) -> None:
    checkpoint = written(tmp_path)
    weights = make_weights(LLAMA)
    weights["model.embed_tokens.weight"][0, 0] = 1e30
    write_safetensors(checkpoint / "model.safetensors", weights, "f32")
    with pytest.raises(UnsupportedModelError, match=r"token_embd\.weight holds values that f16 cannot — set"):
        lower(checkpoint, quantisation)
    lower(checkpoint, "f32")


@pytest.mark.parametrize("quantisation", ["q8_0", "q4_0", "q4_1"])
@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 65504.0])
def test_blocks_at_the_ends_of_the_range_are_quantised(tmp_path: Path, quantisation: str, value: float) -> None:
    checkpoint = written(tmp_path)
    weights = make_weights(LLAMA)
    weights["model.layers.0.mlp.up_proj.weight"][:] = value
    write_safetensors(checkpoint / "model.safetensors", weights, "f32")
    tensor = tensors_of(lower(checkpoint, quantisation))["blk.0.ffn_up.weight"]
    restored = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    np.testing.assert_allclose(restored, value, rtol=0.1, atol=1e-7)


def test_end_tokens_of_both_configs_are_kept(tmp_path: Path) -> None:
    model = replace(VARIANTS["qwen3"], generation_overrides={"eos_token_id": [5, 6]})
    bundle = lower(written(tmp_path, model))
    known = {model.tokenizer.id_of(text) for text in ("<|im_end|>", "<|endoftext|>")}
    assert set(bundle.end_token_ids) == {5, 6} | known


def test_more_end_tokens_than_the_format_has_names_for_are_refused(tmp_path: Path) -> None:
    model = replace(LLAMA, generation_overrides={"eos_token_id": [5, 6, 7, 8]})
    with pytest.raises(UnsupportedModelError, match="end tokens"):
        lower(written(tmp_path, model))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop("model"), "tokenizer.json: model is missing"),
        (lambda t: t["model"].update(type="Unigram"), "tokenizers of kind 'Unigram' are not supported"),
        (lambda t: t["model"].update(vocab=[]), "model.vocab is not an object"),
        (lambda t: t["model"]["vocab"].update(zzz=10_000), "token id 10000 has no row in the embedding"),
        (lambda t: t["model"]["vocab"].update(zzz="5"), "model.vocab holds an entry that is not a text and its id"),
        (lambda t: t["model"]["merges"].append(["a"]), "model.merges holds an entry that is not a pair"),
        (lambda t: t["model"]["merges"].append(["a", "zzz"]), "not a valid tokenizer"),
        (lambda t: t.update(added_tokens=[{"id": -1, "content": "x"}]), "added_tokens holds an entry"),
        (lambda t: t.update(added_tokens=["x"]), "added_tokens holds an entry that is not an object"),
        (lambda t: t.update(decoder={"type": "WordPiece"}), r"its decoder \(WordPiece\) is not supported"),
        (lambda t: t.update(decoder=None), r"its decoder \(none\) is not supported"),
        (lambda t: t.update(pre_tokenizer={"type": "Nonsense"}), "not a valid tokenizer"),
        (lambda t: t.update(post_processor=PANICKING_POST_PROCESSOR), "not a valid tokenizer"),
    ],
)
def test_a_wrong_tokenizer_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object], reason: str) -> None:
    checkpoint = written(tmp_path)
    edit(checkpoint / "tokenizer.json", change)
    with pytest.raises(EdgeLLMError, match=reason):
        lower(checkpoint)


def test_a_pre_tokenizer_without_a_name_is_kept_in_tokenizer_json_only(tmp_path: Path) -> None:
    checkpoint = written(tmp_path)
    punctuation = {"type": "Punctuation", "behavior": "Isolated"}
    edit(
        checkpoint / "tokenizer.json",
        lambda t: t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [punctuation, t["pre_tokenizer"]]}),
    )
    bundle = lower(checkpoint)
    assert "tokenizer.ggml.pre" not in metadata_of(bundle.model_file)
    assert (bundle.directory / "tokenizer.json").read_text() == (checkpoint / "tokenizer.json").read_text()


def test_the_template_file_wins_over_the_tokenizer_config(tmp_path: Path) -> None:
    checkpoint = written(tmp_path)
    (checkpoint / "chat_template.jinja").write_text("from the file")
    template = lower(checkpoint).chat_template_file
    assert template is not None
    assert template.read_text() == "from the file"


def test_of_several_templates_the_default_one_counts(tmp_path: Path) -> None:
    checkpoint = written(tmp_path)
    templates = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    edit(checkpoint / "tokenizer_config.json", lambda config: config.update(chat_template=templates))
    template = lower(checkpoint).chat_template_file
    assert template is not None
    assert template.read_text() == "plain"


@pytest.mark.parametrize("template", [None, ""])
def test_a_checkpoint_may_lack_a_template(tmp_path: Path, template: str | None) -> None:
    checkpoint = written(tmp_path)
    edit(checkpoint / "tokenizer_config.json", lambda config: config.update(chat_template=template))
    assert lower(checkpoint).chat_template_file is None


@pytest.mark.parametrize("template", [3, {"a": 1}, "\ud800"])
def test_a_template_that_is_no_text_is_refused(tmp_path: Path, template: object) -> None:
    checkpoint = written(tmp_path)
    edit(checkpoint / "tokenizer_config.json", lambda config: config.update(chat_template=template))
    with pytest.raises(CheckpointError, match="chat_template"):
        lower(checkpoint)


def test_named_tokens_may_be_objects_or_in_the_older_file(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, VARIANTS["llama-llama3-rope"])
    edit(
        checkpoint / "tokenizer_config.json",
        lambda config: config.update(bos_token={"content": "<|begin_of_text|>"}, eos_token=None),
    )
    (checkpoint / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<|im_end|>"}}))
    bundle = lower(checkpoint)
    config = json.loads((bundle.directory / "tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"], config["add_bos_token"]) == (
        "<|begin_of_text|>",
        "<|im_end|>",
        True,
    )
    assert metadata_of(bundle.model_file)["tokenizer.ggml.add_bos_token"] is True


def test_a_gguf_source_keeps_its_bytes_and_gains_its_files(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", VARIANTS["qwen3"], "Q8_0")
    directory = tmp_path / "bundle"
    directory.mkdir()
    bundle = plan_for(ModelSource(SourceKind.GGUF, path, "model"), "auto").write(directory, lambda progress: None)
    assert bundle.model_file.read_bytes() == path.read_bytes()
    assert Bundle.load(directory) == bundle
    assert (bundle.quantisation, bundle.architecture) == ("q8_0", "qwen3")


def test_sampling_that_a_gguf_file_recommends_becomes_a_generation_config(tmp_path: Path) -> None:
    original = write_gguf(tmp_path / "model.gguf", LLAMA)
    assert _bundle_of_gguf(original, tmp_path / "silent").generation_config_file is None
    changed = tmp_path / "changed.gguf"
    _rewrite_with(original, changed, "general.sampling.temp", 0.5)
    path = _bundle_of_gguf(changed, tmp_path / "telling").generation_config_file
    assert path is not None
    assert json.loads(path.read_text()) == {"temperature": 0.5}
    _rewrite_with(original, changed, "general.sampling.top_p", "much")
    with pytest.raises(CheckpointError, match=r"general\.sampling\.top_p is not a number"):
        _bundle_of_gguf(changed, tmp_path / "wrong")


def _bundle_of_gguf(path: Path, directory: Path) -> Bundle:
    directory.mkdir()
    return plan_for(ModelSource(SourceKind.GGUF, path, "model"), "auto").write(directory, lambda progress: None)


def test_a_sentencepiece_tokenizer_survives_the_way_through_lowering(tmp_path: Path) -> None:
    vocabulary = sentencepiece_model()
    tokenizer = tokenizer_files(read_gguf(vocabulary.write(tmp_path / "spm.gguf"))).tokenizer
    checkpoint = written(tmp_path, replace(LLAMA, padding_rows=len(vocabulary.texts) + 5 - LLAMA.token_count))
    (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer))
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    bundle = lower(checkpoint)
    metadata = metadata_of(bundle.model_file)
    assert metadata["tokenizer.ggml.model"] == "llama"
    assert metadata["tokenizer.ggml.token_type"] == [*vocabulary.kinds, *[5] * 5]
    assert metadata["tokenizer.ggml.add_space_prefix"] is True
    assert metadata["tokenizer.ggml.add_bos_token"] is True
    again = tokenizer_files(read_gguf(bundle.model_file)).tokenizer
    one, two = (Tokenizer.from_str(json.dumps(each)) for each in (tokenizer, again))
    for text in sample_texts(100):
        assert one.encode(text).ids == two.encode(text).ids


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("expert_count", 4, "mixtures of experts are not supported"),
        ("rope.scaling.type", "yarn", "rope scaling 'yarn' is not supported"),
        ("embedding_length", 7, r"token_embd.weight has shape \[128, \d+\]"),
    ],
)
def test_a_gguf_model_the_runtime_lacks_is_refused(tmp_path: Path, key: str, value: int | str, reason: str) -> None:
    original = write_gguf(tmp_path / "model.gguf", LLAMA)
    changed = tmp_path / "changed.gguf"
    _rewrite_with(original, changed, f"llama.{key}", value)
    with pytest.raises(EdgeLLMError, match=reason):
        plan_for(ModelSource(SourceKind.GGUF, changed, "model"), "auto")


def _rewrite_with(source: Path, target: Path, key: str, value: float | str) -> None:
    file = read_gguf(source)
    writer = gguf.GGUFWriter(target, str(file.metadata["general.architecture"]))
    for name, old in {**file.metadata, key: value}.items():
        if name == "general.architecture":
            continue
        kind = gguf.GGUFValueType.get_type(old)
        writer.add_key_value(name, old, gguf.GGUFValueType.UINT32 if kind == gguf.GGUFValueType.INT32 else kind)
    for tensor in gguf.GGUFReader(source).tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_an_unknown_gguf_family_lists_the_supported_ones(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(
        UnsupportedModelError, match=r"family 'mamba' are not supported \(supported: llama, qwen2, qwen3\)"
    ):
        plan_for(ModelSource(SourceKind.GGUF, path, "other"), "auto")
