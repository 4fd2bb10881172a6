from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgellm.engines.resources import tensorrt_memory
from edgellm.engines.resources.available_memory import available_memory_bytes
from edgellm.engines.resources.estimate import SPARE_MEMORY_BYTES, Estimate, Part, require_memory
from edgellm.engines.resources.native_memory import (
    NativeShape,
    kv_pages,
    largest_kv_tokens,
    load_estimate,
    lowering_estimate,
)
from edgellm.errors import InsufficientMemoryError

MIB = 1 << 20
# Qwen3-4B at q8_0.
QWEN3_4B = NativeShape(
    model_bytes=4_280_000_000, layer_count=36, kv_head_count=8, head_size=128, vocab_size=151_936, context_length=40_960
)


def files(folder: Path, **contents: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    files(tmp_path, meminfo="MemTotal:  8000000 kB\nMemFree: 1 kB\nMemAvailable:    4096000 kB\n", cgroup="0::/a/b\n")
    files(tmp_path / "root" / "a" / "b")
    return tmp_path


def available(machine: Path) -> int | None:
    return available_memory_bytes(machine / "meminfo", machine / "cgroup", machine / "root")


def test_the_machine_says_what_is_available(machine: Path) -> None:
    assert available(machine) == 4_096_000 * 1024


def test_a_machine_that_does_not_say_is_unknown(tmp_path: Path) -> None:
    assert available(tmp_path) is None
    files(tmp_path, meminfo="MemAvailable:\n", cgroup="0::/../..\n")
    assert available(tmp_path) is None


def test_the_tightest_cgroup_counts_and_its_page_cache_is_free(machine: Path) -> None:
    group = machine / "root" / "a" / "b"
    files(group, memory__max="max", memory__current=str(900 * MIB))
    assert available(machine) == 4_096_000 * 1024
    stat = f"anon 1\nactive_file {100 * MIB}\ninactive_file {200 * MIB}\nslab_reclaimable 0\n"
    files(group.parent, memory__max=str(1000 * MIB), memory__current=str(900 * MIB), memory__stat=stat)
    assert available(machine) == 400 * MIB
    files(group, memory__max=str(950 * MIB))
    assert available(machine) == 50 * MIB
    files(group, memory__current=str(999 * MIB))
    assert available(machine) == 0


def test_this_machine_says_something() -> None:
    found = available_memory_bytes()
    assert found is not None
    assert found > 0


def test_the_native_pool_has_pages_for_every_sequence_and_one_to_keep() -> None:
    assert kv_pages(8192, 4, context_reuse=True) == 256 * 5
    assert kv_pages(8193, 4, context_reuse=False) == 257 * 4
    assert QWEN3_4B.kv_bytes_per_token == 2 * 36 * 8 * 128 * 2
    estimate = load_estimate(QWEN3_4B, 8192, 4, context_reuse=True)
    pool = next(part for part in estimate.memory if part.name == "KV pool")
    assert pool.size_bytes == 8192 * 5 * QWEN3_4B.kv_bytes_per_token


def test_an_embedding_that_is_the_output_matrix_too_counts_beside_its_panels() -> None:
    shared = replace(QWEN3_4B, shared_embedding_bytes=400 * MIB)
    alone, both = (load_estimate(shape, 8192, 4, context_reuse=True) for shape in (QWEN3_4B, shared))
    assert both.memory_bytes - alone.memory_bytes == 400 * MIB
    assert largest_kv_tokens(shared, 4, 16 << 30, context_reuse=True) < largest_kv_tokens(
        QWEN3_4B, 4, 16 << 30, context_reuse=True
    )


def test_a_type_of_another_width_counts_as_such() -> None:
    wide = NativeShape(1, 1, 1, 32, 1, 1, kv_cache_dtype="f32")
    assert wide.kv_bytes_per_token == 2 * 32 * 4


def test_the_most_tokens_that_fit_do_fit_and_one_page_more_does_not() -> None:
    for gigabytes in (6, 8, 16):
        room = gigabytes << 30
        tokens = largest_kv_tokens(QWEN3_4B, 4, room, context_reuse=True)
        assert tokens > 0

        def needed(count: int) -> int:
            return load_estimate(QWEN3_4B, count, 4, context_reuse=True).memory_bytes + SPARE_MEMORY_BYTES

        assert needed(tokens) <= room < needed(tokens + 32)
    assert largest_kv_tokens(QWEN3_4B, 4, 3 << 30, context_reuse=True) == 0


def test_the_pool_of_an_engine_follows_the_published_formula() -> None:
    # 1 sequence of 8192 tokens: 64 pages of 128.
    assert (
        tensorrt_memory.kv_pool_bytes(
            max_batch_size=1, max_kv_tokens=8192, layer_count=28, kv_head_count=8, head_size=128, dtype="fp16"
        )
        == 64 * 128 * 2 * 28 * 8 * 128 * 2
    )
    fp8 = tensorrt_memory.kv_pool_bytes(
        max_batch_size=2, max_kv_tokens=129, layer_count=1, kv_head_count=1, head_size=64, dtype="FP8"
    )
    assert fp8 == 2 * 2 * 128 * 2 * 64


def test_a_phase_that_does_not_fit_is_refused_with_every_number() -> None:
    estimate = Estimate("load", (Part("weights", 300 * MIB, "mapped file"), Part("KV pool", 100 * MIB, "4 x 8192")))
    with pytest.raises(InsufficientMemoryError) as caught:
        require_memory(estimate, "tiny", "lower max_batch_size", lambda: 500 * MIB)
    assert str(caught.value) == (
        "tiny: load needs 528 MiB of memory, 500 MiB are available: weights 300 MiB (mapped file), KV pool 100 MiB "
        "(4 x 8192), and 128 MiB for the rest of the system — lower max_batch_size"
    )


@pytest.mark.parametrize("available_bytes", [528 * MIB, None])
def test_a_phase_that_fits_or_cannot_be_judged_goes_on(available_bytes: int | None) -> None:
    estimate = Estimate("load", (Part("weights", 400 * MIB, "mapped file"),))
    require_memory(estimate, "tiny", "", lambda: available_bytes)


def test_lowering_takes_the_disk_of_its_bundle_and_memory_that_does_not_grow_with_it() -> None:
    small, large = lowering_estimate(1 << 20, 49_152), lowering_estimate(1 << 33, 49_152)
    assert (small.disk_bytes, large.disk_bytes) == (1 << 20, 1 << 33)
    assert small.memory_bytes == large.memory_bytes
