from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint

from edgellm.engines import checkpoint_digest as digests
from edgellm.engines.checkpoint_digest import checkpoint_digest, checkpoint_signature
from edgellm.engines.safetensors_header import SafetensorsHeader, StoredTensor
from edgellm.errors import CheckpointError, ModelSourceError


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([byte ^ 0x80]))


def shards(checkpoint: Path) -> list[Path]:
    return sorted(checkpoint.glob("*.safetensors"))


def tensors_of(path: Path) -> list[StoredTensor]:
    with path.open("rb") as stream:
        return list(SafetensorsHeader(path, stream).tensors.values())


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose matrices are sampled and not read whole."""
    model = replace(VARIANTS["qwen3"], hidden_size=128, intermediate_size=512)
    return write_checkpoint(tmp_path_factory.mktemp("large") / "model", model)


@pytest.fixture
def large_copy(large: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(large, tmp_path / "model"))


def test_moving_copying_and_touching_keep_the_digest(checkpoint_copy: Path, tmp_path: Path) -> None:
    digest = checkpoint_digest(checkpoint_copy)
    elsewhere = Path(shutil.copytree(checkpoint_copy, tmp_path / "elsewhere"))
    assert checkpoint_digest(elsewhere) == digest
    for path in elsewhere.iterdir():
        os.utime(path, (0, 0))
    assert checkpoint_digest(elsewhere) == digest
    moved = elsewhere.rename(tmp_path / "moved")
    assert checkpoint_digest(moved) == digest


def test_files_by_links_have_the_digest_of_the_files(checkpoint_copy: Path, tmp_path: Path) -> None:
    """As in a download of the hub's client, whose files are links to blobs."""
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for path in checkpoint_copy.iterdir():
        (linked / path.name).symlink_to(path)
    assert checkpoint_digest(linked) == checkpoint_digest(checkpoint_copy)


def test_files_that_no_build_reads_do_not_count(checkpoint_copy: Path) -> None:
    digest = checkpoint_digest(checkpoint_copy)
    (checkpoint_copy / "README.md").write_text("about")
    (checkpoint_copy / ".gitattributes").write_text("x")
    (checkpoint_copy / ".cache").mkdir()
    (checkpoint_copy / ".cache" / "state.json").write_text("{}")
    assert checkpoint_digest(checkpoint_copy) == digest


def test_every_byte_of_metadata_counts(checkpoint_copy: Path) -> None:
    digest = checkpoint_digest(checkpoint_copy)
    names = [path.name for path in checkpoint_copy.iterdir() if path.suffix in (".json", ".jinja")]
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} <= set(names)
    for name in names:
        path = checkpoint_copy / name
        before = path.read_bytes()
        path.write_bytes(before + b" ")
        assert checkpoint_digest(checkpoint_copy) != digest, name
        path.rename(path.with_name("x" + name))
        assert checkpoint_digest(checkpoint_copy) != digest, name
        path.with_name("x" + name).rename(path)
        path.write_bytes(before)
    assert checkpoint_digest(checkpoint_copy) == digest


def test_folders_of_components_count(checkpoint_copy: Path) -> None:
    digest = checkpoint_digest(checkpoint_copy)
    shutil.copytree(checkpoint_copy, checkpoint_copy / "speech_tokenizer")
    nested = checkpoint_digest(checkpoint_copy)
    assert nested != digest
    (shard, *_) = shards(checkpoint_copy / "speech_tokenizer")
    flip(shard, shard.stat().st_size - 1)
    assert checkpoint_digest(checkpoint_copy) != nested


def test_a_change_in_any_single_tensor_is_noticed(large_copy: Path) -> None:
    """A fine-tune of one tensor: small ones by any byte, large ones by a scattered change of one value in a hundred."""
    digest = checkpoint_digest(large_copy)
    generator = np.random.default_rng(7)
    sampled = 0
    for shard in shards(large_copy):
        whole = shard.read_bytes()
        for tensor in tensors_of(shard):
            content = np.frombuffer(whole, np.uint8).copy()
            width_bytes = 4 if tensor.dtype == "F32" else 2
            count = tensor.size_bytes // width_bytes
            changed = generator.choice(count, max(1, count // 100), replace=False)
            content[tensor.offset_bytes + changed * width_bytes] ^= 1
            shard.write_bytes(content.tobytes())
            assert checkpoint_digest(large_copy) != digest, tensor.name
            sampled += tensor.size_bytes > digests.WHOLE_TENSOR_BYTES
        shard.write_bytes(whole)
    assert sampled > 10
    assert checkpoint_digest(large_copy) == digest


def test_every_byte_of_a_small_tensor_counts_and_a_fifteenth_of_a_large_one(large_copy: Path) -> None:
    digest = checkpoint_digest(large_copy)
    (shard,) = shards(large_copy)
    tensors = tensors_of(shard)
    small = next(tensor for tensor in tensors if tensor.size_bytes <= digests.WHOLE_TENSOR_BYTES)
    for offset in range(0, small.size_bytes, 37):
        flip(shard, small.offset_bytes + offset)
        assert checkpoint_digest(large_copy) != digest
        flip(shard, small.offset_bytes + offset)
    largest = max(tensors, key=lambda tensor: tensor.size_bytes)
    stretch = largest.size_bytes // (digests.SAMPLES_PER_TENSOR - 1)
    whole = shard.read_bytes()
    for start in range(0, largest.size_bytes - stretch + 1, stretch // 3):
        begin = largest.offset_bytes + start
        shard.write_bytes(whole[:begin] + bytes(stretch) + whole[begin + stretch :])
        assert checkpoint_digest(large_copy) != digest, start


def test_what_lies_between_samples_is_not_noticed(large_copy: Path) -> None:
    """The documented limit: an edit of one byte in the middle of a large matrix."""
    digest = checkpoint_digest(large_copy)
    (shard,) = shards(large_copy)
    largest = max(tensors_of(shard), key=lambda tensor: tensor.size_bytes)
    flip(shard, largest.offset_bytes + digests.SAMPLE_BYTES + 1)
    assert checkpoint_digest(large_copy) == digest
    assert checkpoint_signature(large_copy) != ()


def test_two_checkpoints_of_one_shape_differ(tmp_path: Path) -> None:
    one, other = (write_checkpoint(tmp_path / str(seed), replace(VARIANTS["llama"], seed=seed)) for seed in (1, 2))
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
    assert checkpoint_digest(one) != checkpoint_digest(other)


def test_gguf_files_differ_by_weights_and_not_by_path(gguf_copy: Path, tmp_path: Path) -> None:
    digest = checkpoint_digest(gguf_copy)
    assert checkpoint_digest(Path(shutil.copy(gguf_copy, tmp_path / "other.gguf"))) == digest
    flip(gguf_copy, gguf_copy.stat().st_size - 1)
    assert checkpoint_digest(gguf_copy) != digest


def test_pytorch_weights_count_by_size_and_samples(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "pytorch_model.bin"
    weights.write_bytes(bytes(100_000))
    digest = checkpoint_digest(tmp_path)
    flip(weights, 99_999)
    assert checkpoint_digest(tmp_path) != digest
    weights.write_bytes(bytes(100_001))
    assert checkpoint_digest(tmp_path) != digest


def test_many_tensors_share_the_samples() -> None:
    assert digests._samples_of_each(1) == digests._samples_of_each(4096) == digests.SAMPLES_PER_TENSOR
    assert digests._samples_of_each(8192) == 8
    assert digests._samples_of_each(100_000) == digests.MIN_SAMPLES_PER_TENSOR


def test_the_signature_notices_what_the_digest_may_not(checkpoint_copy: Path) -> None:
    before = checkpoint_signature(checkpoint_copy)
    assert checkpoint_signature(checkpoint_copy) == before
    (shard, *_) = shards(checkpoint_copy)
    os.utime(shard, (1, 1))
    assert checkpoint_signature(checkpoint_copy) != before


def test_damage_is_named(checkpoint_copy: Path, tmp_path: Path) -> None:
    (shard, *_) = shards(checkpoint_copy)
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=f"{shard}.*truncated"):
        checkpoint_digest(checkpoint_copy)
    with pytest.raises(ModelSourceError, match=f"{tmp_path}/absent: No such file"):
        checkpoint_digest(tmp_path / "absent")
    with pytest.raises(ModelSourceError, match=f"{tmp_path}/absent: No such file"):
        checkpoint_signature(tmp_path / "absent")


def test_a_folder_of_countless_files_is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MAX_FILES", 3)
    for index in range(4):
        (tmp_path / f"{index}.json").write_text("{}")
    with pytest.raises(CheckpointError, match="more than 3 files"):
        checkpoint_digest(tmp_path)
