"""Damaged, absurd and unsupported model files end in an error that names the file, never in a crash or a hang.

Every file is opened in a process of its own kind (tests/native/fuzz/open_worker.py), so that a crash would be seen.
A damaged number may leave a file that is sound, only different: then it must load and run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.bundles import lowered_bundle_of
from tests.models.tiny_checkpoints import VARIANTS, TinyModel, write_checkpoint
from tests.models.tiny_gguf import write_gguf
from tests.models.tiny_tokenizer import TinyTokenizer
from tests.models.tiny_vision import VISION_VARIANTS, write_vision_checkpoint
from tests.native.fuzz import gguf_damage, safetensors_damage
from tests.native.fuzz.gguf_damage import Damage
from tests.native.fuzz.opening import Opener, Outcome
from tests.native.runtime_driver import NativeRuntime, native_module

SMALLEST = replace(
    VARIANTS["llama"],
    hidden_size=32,
    intermediate_size=32,
    layer_count=1,
    head_count=2,
    kv_head_count=1,
    head_size=16,
    context_length=256,
)
SMALLEST_QWEN3 = replace(
    VARIANTS["qwen3"],
    hidden_size=32,
    intermediate_size=32,
    layer_count=1,
    head_count=2,
    kv_head_count=1,
    head_size=16,
    context_length=256,
)
RANDOM_CASES = 400
RANDOM_CASES_LONG = 20_000
EDGELLM_ERROR = "EdgeLLMError"
NATIVE_MODEL_ERROR = "ModelFileError"
DAMAGED_WEIGHTS = "its weights seem damaged"
# The model loaded, with so short a context that the worker's few tokens do not fit.
REQUEST_ERROR = "InvalidRequest"


@pytest.fixture(scope="module")
def opener() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener


def complaints_about(case: str, outcome: Outcome, error_class: str, file_names: Iterable[str]) -> list[str]:
    """What is wrong with how one damaged file was treated: nothing when it loaded, or was refused by its name."""
    if outcome.died:
        return [f"{case}: the process died ({outcome.died}): {outcome.message}"]
    if outcome.opened or outcome.kinds[0] == REQUEST_ERROR:
        return []
    if error_class not in outcome.kinds:
        return [f"{case}: {outcome.kinds[0]}: {outcome.message[:300]}"]
    if not any(name in outcome.message for name in file_names):
        return [f"{case}: names no file: {outcome.message[:300]}"]
    if "\n" in outcome.message or len(outcome.message) > 1000:
        return [f"{case}: more than one line: {outcome.message[:300]!r}"]
    return []


def native_complaints(opener: Opener, directory: Path, damages: Iterable[Damage]) -> list[str]:
    complaints: list[str] = []
    for damage in damages:
        (directory / "llm.gguf").write_bytes(damage.data)
        outcome = opener.open_bundle(directory)
        complaints += complaints_about(damage.name, outcome, NATIVE_MODEL_ERROR, [str(directory / "llm.gguf")])
    return complaints


def lowering_complaints(
    opener: Opener, target: Path, source: Path, cache: Path, damages: Iterable[Damage]
) -> list[str]:
    complaints: list[str] = []
    for damage in damages:
        target.write_bytes(damage.data)
        outcome = opener.open_source(source, cache)
        complaints += complaints_about(damage.name, outcome, EDGELLM_ERROR, [str(source)])
    return complaints


def gguf_bytes(folder: Path, model: TinyModel, matrix_type: str = "F32") -> bytes:
    return write_gguf(folder / "whole.gguf", model, matrix_type).read_bytes()


def test_the_undamaged_files_open(tmp_path: Path, opener: Opener) -> None:
    (tmp_path / "bundle").mkdir()
    for model in (SMALLEST, SMALLEST_QWEN3):
        (tmp_path / "bundle" / "llm.gguf").write_bytes(gguf_bytes(tmp_path, model))
        assert opener.open_bundle(tmp_path / "bundle") == Outcome(opened=True)
        assert opener.open_source(tmp_path / "whole.gguf", tmp_path / "cache") == Outcome(opened=True)
        assert opener.open_source(write_checkpoint(tmp_path / model.family, model), tmp_path / "cache") == Outcome(
            opened=True
        )


@pytest.mark.parametrize("kind", ["truncations", "absurd_numbers"])
@pytest.mark.parametrize("model", [SMALLEST, SMALLEST_QWEN3], ids=["llama", "qwen3"])
def test_native_loader_survives_damaged_gguf(tmp_path: Path, opener: Opener, model: TinyModel, kind: str) -> None:
    data = gguf_bytes(tmp_path, model)
    damages = gguf_damage.truncations(data, 60) if kind == "truncations" else gguf_damage.absurd_numbers(data)
    assert native_complaints(opener, tmp_path, damages) == []


@pytest.mark.parametrize("matrix_type", ["F16", "Q4_1"])
def test_native_loader_survives_random_damage(tmp_path: Path, opener: Opener, matrix_type: str) -> None:
    data = gguf_bytes(tmp_path, SMALLEST, matrix_type)
    assert native_complaints(opener, tmp_path, gguf_damage.random_damage(data, 1, RANDOM_CASES)) == []


@pytest.mark.parametrize("kind", ["truncations", "absurd_numbers", "random_damage"])
def test_a_damaged_vision_tower_is_refused_by_its_file(tmp_path: Path, opener: Opener, kind: str) -> None:
    checkpoint = write_vision_checkpoint(tmp_path / "model", replace(VISION_VARIANTS["smolvlm"], layer_count=1))
    directory = lowered_bundle_of(checkpoint, tmp_path / "bundle", "f32").directory
    tower = directory / "visual" / "visual.gguf"
    data = tower.read_bytes()
    assert opener.open_vision(directory) == Outcome(opened=True)
    damages = {
        "truncations": lambda: gguf_damage.truncations(data, 30),
        "absurd_numbers": lambda: gguf_damage.absurd_numbers(data),
        "random_damage": lambda: gguf_damage.random_damage(data, 4, RANDOM_CASES // 2),
    }[kind]()
    complaints: list[str] = []
    for damage in damages:
        tower.write_bytes(damage.data)
        outcome = opener.open_vision(directory)
        if DAMAGED_WEIGHTS not in outcome.message:  # numbers that are none show when an image is encoded
            complaints += complaints_about(damage.name, outcome, NATIVE_MODEL_ERROR, [str(tower)])
    assert complaints == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 104))
@pytest.mark.parametrize("model", [SMALLEST, SMALLEST_QWEN3], ids=["llama", "qwen3"])
def test_native_loader_survives_much_random_damage(tmp_path: Path, opener: Opener, model: TinyModel, seed: int) -> None:
    data = gguf_bytes(tmp_path, model, "Q8_0")
    assert native_complaints(opener, tmp_path, gguf_damage.random_damage(data, seed, RANDOM_CASES_LONG)) == []


@pytest.mark.parametrize("kind", ["truncations", "absurd_numbers", "random_damage"])
def test_lowering_survives_damaged_gguf(tmp_path: Path, opener: Opener, kind: str) -> None:
    data = gguf_bytes(tmp_path, SMALLEST)
    damages = {
        "truncations": lambda: gguf_damage.truncations(data, 30),
        "absurd_numbers": lambda: list(gguf_damage.absurd_numbers(data))[::4],
        "random_damage": lambda: gguf_damage.random_damage(data, 2, RANDOM_CASES // 2),
    }[kind]()
    source = tmp_path / "damaged.gguf"
    assert lowering_complaints(opener, source, source, tmp_path / "cache", damages) == []


@pytest.mark.parametrize("kind", ["truncations", "lying_headers", "random_damage"])
def test_lowering_survives_damaged_safetensors(tmp_path: Path, opener: Opener, kind: str) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", SMALLEST)
    weights = checkpoint / "model.safetensors"
    data = weights.read_bytes()
    damages = {
        "truncations": lambda: safetensors_damage.truncations(data, 40),
        "lying_headers": lambda: safetensors_damage.lying_headers(data, "model.layers.0.self_attn.k_proj.weight"),
        "random_damage": lambda: safetensors_damage.random_damage(data, 3, RANDOM_CASES // 2),
    }[kind]()
    assert lowering_complaints(opener, weights, checkpoint, tmp_path / "cache", damages) == []


@pytest.mark.long
def test_lowering_survives_much_random_damage(tmp_path: Path, opener: Opener) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", SMALLEST)
    weights = checkpoint / "model.safetensors"
    data = weights.read_bytes()
    damages = safetensors_damage.random_damage(data, 200, 10_000)
    assert lowering_complaints(opener, weights, checkpoint, tmp_path / "cache", damages) == []


def refusal(opener: Opener, model: Path, cache: Path) -> str:
    """The message a model is refused with."""
    outcome = opener.open_source(model, cache)
    assert not outcome.opened
    assert not outcome.died, outcome
    assert EDGELLM_ERROR in outcome.kinds, outcome
    assert not list(cache.glob("engines/*")), "nothing is published of a model that was refused"
    return outcome.message


Change = Callable[[Path], None]


def set_in_json(name: str, **values: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        content = json.loads(path.read_text())
        content.update(values)
        path.write_text(json.dumps(content))

    return change


def write_text(name: str, text: str | bytes) -> Change:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def rename(name: str, new_name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).rename(folder / new_name)

    return change


SPOILT_CHECKPOINTS: Mapping[str, tuple[Change, str]] = {
    "unsupported family": (set_in_json("config.json", model_type="gpt_bigcode"), "gpt_bigcode"),
    "family that is no text": (set_in_json("config.json", model_type=7), "model_type"),
    "no tokenizer": (remove("tokenizer.json"), "tokenizer.json"),
    "tokenizer that is no JSON": (write_text("tokenizer.json", "{"), "tokenizer.json"),
    "tokenizer without a vocabulary": (write_text("tokenizer.json", "{}"), "tokenizer.json"),
    "tokenizer of another kind": (set_in_json("tokenizer.json", model={"type": "WordPiece", "vocab": {}}), "tokenizer"),
    "tokenizer nested without end": (write_text("tokenizer.json", "[" * 200_000), "tokenizer.json"),
    "no config": (remove("config.json"), "config.json"),
    "empty config": (write_text("config.json", ""), "config.json"),
    "config that is a list": (write_text("config.json", "[]"), "config.json"),
    "config that is not UTF-8": (write_text("config.json", b"\xff\xfe"), "config.json"),
    "config nested without end": (write_text("config.json", '{"a":' * 100_000), "config.json"),
    "no weights": (remove("model.safetensors"), "safetensors"),
    "weights in PyTorch's format": (
        rename("model.safetensors", "pytorch_model.bin"),
        "safetensors",
    ),
    "hidden size that the weights do not have": (set_in_json("config.json", hidden_size=64), "config.json"),
    "zero layers": (set_in_json("config.json", num_hidden_layers=0), "num_hidden_layers"),
    "more layers than there are": (set_in_json("config.json", num_hidden_layers=2), "model.layers.1"),
    "fewer layers than there are": (set_in_json("config.json", num_hidden_layers=10**9), "model.layers"),
    "negative heads": (set_in_json("config.json", num_attention_heads=-2), "num_attention_heads"),
    "heads that no group divides": (
        set_in_json("config.json", num_attention_heads=2, num_key_value_heads=3),
        "num_key_value_heads",
    ),
    "vocabulary smaller than the tokenizer's": (set_in_json("config.json", vocab_size=10), "config.json"),
    "epsilon that is not a number": (set_in_json("config.json", rms_norm_eps="x"), "rms_norm_eps"),
    "rope of an unknown kind": (
        set_in_json("config.json", rope_scaling={"rope_type": "yarn", "factor": 4.0}),
        "yarn",
    ),
    "rope scaled by zero": (set_in_json("config.json", rope_scaling={"rope_type": "linear", "factor": 0}), "factor"),
    "activation that is not known": (set_in_json("config.json", hidden_act="gelu"), "hidden_act"),
    "quantised in a way that is not known": (
        set_in_json("config.json", quantization_config={"quant_method": "gptq", "bits": 4}),
        "gptq",
    ),
}


@pytest.mark.parametrize("case", SPOILT_CHECKPOINTS)
def test_spoilt_checkpoints_are_refused_by_file_and_field(tmp_path: Path, opener: Opener, case: str) -> None:
    change, expected = SPOILT_CHECKPOINTS[case]
    checkpoint = write_checkpoint(tmp_path / "checkpoint", SMALLEST)
    change(checkpoint)
    message = refusal(opener, checkpoint, tmp_path / "cache")
    assert expected in message
    assert str(checkpoint) in message


def test_an_unsupported_family_lists_the_supported_ones(tmp_path: Path, opener: Opener) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", SMALLEST)
    set_in_json("config.json", model_type="mamba")(checkpoint)
    message = refusal(opener, checkpoint, tmp_path / "cache")
    assert all(family in message for family in ("llama", "mistral", "qwen2", "qwen3"))


@pytest.mark.parametrize("stored", ["F64", "I8", "F8_E4M3"])
def test_weights_of_another_type_are_refused_by_name(tmp_path: Path, opener: Opener, stored: str) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", SMALLEST)
    weights = checkpoint / "model.safetensors"
    header, payload = safetensors_damage.split_file(weights.read_bytes())
    name = "model.layers.0.mlp.up_proj.weight"
    parts = {}
    for tensor, entry in header.items():
        if tensor != "__metadata__":
            start, end = entry["data_offsets"]
            parts[tensor] = payload[start:end]
    rows, columns = header[name]["shape"]
    parts[name] = bytes({"F64": 8, "I8": 1, "F8_E4M3": 1}[stored] * rows * columns)
    header[name]["dtype"] = stored
    offset = 0
    for tensor, part in parts.items():
        header[tensor]["data_offsets"] = [offset, offset + len(part)]
        offset += len(part)
    weights.write_bytes(safetensors_damage.join_file(header, b"".join(parts.values())))
    message = refusal(opener, checkpoint, tmp_path / "cache")
    assert stored in message
    assert name in message


@pytest.mark.parametrize(
    ("weight_map", "expected"),
    [
        ({"model.norm.weight": "../../../etc/passwd"}, "index"),
        ({"model.norm.weight": "/etc/passwd"}, "index"),
        ({"model.norm.weight": "absent.safetensors"}, "absent.safetensors"),
        ({}, "index"),
        (7, "weight_map"),
    ],
)
def test_a_spoilt_index_of_shards_is_refused(tmp_path: Path, opener: Opener, weight_map: Any, expected: str) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", replace(SMALLEST, shard_count=2))
    index = checkpoint / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"] = (
        content["weight_map"] | weight_map if isinstance(weight_map, dict) and weight_map else weight_map
    )
    index.write_text(json.dumps(content))
    message = refusal(opener, checkpoint, tmp_path / "cache")
    assert expected in message


def test_a_missing_shard_is_named(tmp_path: Path, opener: Opener) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", replace(SMALLEST, shard_count=3))
    (checkpoint / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors" in refusal(opener, checkpoint, tmp_path / "cache")


def test_a_sliding_window_bounds_the_context(tmp_path: Path) -> None:
    """Inside its window sliding attention is full attention; what lies beyond is not computed wrongly but refused."""
    windowed = replace(SMALLEST, family="mistral", config_overrides={"sliding_window": 64})
    bundle = lowered_bundle_of(write_checkpoint(tmp_path / "m", windowed), tmp_path / "bundle")
    assert bundle.context_length == 64
    with pytest.raises(native_module().InvalidRequest, match="64 tokens"):
        NativeRuntime(bundle.directory, threads=1).score([5] * 65)


def test_llama_biases_are_computed_or_refused_and_never_dropped(tmp_path: Path, opener: Opener) -> None:
    """A llama with attention biases: a runtime that ignored them would answer, wrongly."""
    biased = replace(SMALLEST, attention_bias=True)
    outcome = opener.open_source(write_checkpoint(tmp_path / "biased", biased), tmp_path / "cache")
    assert outcome.opened or "bias" in outcome.message


def test_a_gguf_of_another_architecture_lists_the_supported_ones(tmp_path: Path, opener: Opener) -> None:
    data = gguf_bytes(tmp_path, SMALLEST)
    at = data.index(b"general.architecture") + len(b"general.architecture") + 4 + 8
    assert data[at : at + 5] == b"llama"
    damaged = tmp_path / "llm.gguf"
    damaged.write_bytes(data[:at] + b"mamba" + data[at + 5 :])
    native = opener.open_bundle(tmp_path)
    lowered = opener.open_source(damaged.rename(tmp_path / "mamba.gguf"), tmp_path / "cache")
    for outcome in (native, lowered):
        assert not outcome.died
        assert not outcome.opened
        assert all(name in outcome.message for name in ("mamba", "llama", "qwen2", "qwen3"))


def test_a_missing_file_is_named(tmp_path: Path, opener: Opener) -> None:
    for path in (tmp_path / "absent.gguf", tmp_path / "absent"):
        assert str(path) in refusal(opener, path, tmp_path / "cache")
    native = opener.open_bundle(tmp_path / "absent")
    assert NATIVE_MODEL_ERROR in native.kinds
    assert str(tmp_path / "absent") in native.message


def test_a_directory_fifo_or_empty_file_in_place_of_the_model_is_refused(tmp_path: Path, opener: Opener) -> None:
    (tmp_path / "folder" / "llm.gguf").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "llm.gguf").write_bytes(b"")
    (tmp_path / "sparse").mkdir()
    with (tmp_path / "sparse" / "llm.gguf").open("wb") as file:
        file.truncate(1 << 33)
    for name in ("folder", "empty", "sparse"):
        outcome = opener.open_bundle(tmp_path / name)
        assert not outcome.died, outcome
        assert NATIVE_MODEL_ERROR in outcome.kinds, outcome
        assert str(tmp_path / name / "llm.gguf") in outcome.message


def test_a_tokenizer_without_a_template_still_loads(tmp_path: Path, opener: Opener) -> None:
    plain = replace(SMALLEST, tokenizer=TinyTokenizer(chat_template=None))
    assert opener.open_source(write_checkpoint(tmp_path / "plain", plain), tmp_path / "cache").opened
