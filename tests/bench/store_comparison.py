"""The engine store: what a hit costs beside the load, what a digest costs beside hashing, lowering beside a copy."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.bench.http_comparison import Finding
from tests.bench.statistics_of_rounds import Spread, ratio_by_round
from tests.models.bundles import lease_of, lowered_bundle_of, stored_bundle
from tests.models.real_model import smollm2_file
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint

from edgellm import LLM
from edgellm.engines.bundle import Bundle
from edgellm.engines.checkpoint_digest import checkpoint_digest
from edgellm.engines.source import resolve

HIT_TARGET_MS = 50
DIGEST_TARGET_SECONDS = 0.5
LARGE_SHARDS, LARGE_SHARD_BYTES, LARGE_TENSORS_PER_SHARD = 4, 1 << 30, 73
WRITE_BYTES = 16 << 20
QUANTISATIONS = ("f16", "q8_0", "q4_1", "q4_0")
MEGABYTE_BYTES = 1_000_000


def cpu_seconds_of(call: Callable[[], object]) -> float:
    """What a busy machine does not inflate."""
    start = time.process_time()
    call()
    return time.process_time() - start


def seconds_of(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare_hit_with_load(folder: Path, rounds: int) -> list[Finding]:
    """The default model: the whole hit path, from the model argument to a held and checked bundle."""
    model, cache = smollm2_file(), folder / "cache"
    stored_bundle(resolve(str(model), cache), cache)

    def hit() -> None:
        with lease_of(resolve(str(model), cache, download=False), cache) as lease:
            Bundle.load(lease.directory)

    def load() -> None:
        LLM(str(model), cache_dir=str(cache), runtime="native").close()

    hits, hits_cpu, loads = [], [], []
    for _ in range(rounds):
        hits.append(1000 * seconds_of(hit))
        hits_cpu.append(1000 * cpu_seconds_of(hit))
        loads.append(1000 * seconds_of(load))
    spread, cpu = Spread.of(hits), Spread.of(hits_cpu)
    return [
        Finding(
            "hit path, from model argument to a held bundle",
            spread,
            "ms",
            1,
            f"<= {HIT_TARGET_MS}",
            spread.median <= HIT_TARGET_MS,
        ),
        Finding("hit path, CPU time", cpu, "ms", 1, f"<= {HIT_TARGET_MS}", cpu.median <= HIT_TARGET_MS),
        Finding("whole load of a stored model, hit path included", Spread.of(loads), "ms", 0, "", None),
        Finding("hit path to whole load", ratio_by_round(hits, loads), "x", 3, "", None),
    ]


def compare_digest_with_hashing(folder: Path, rounds: int) -> list[Finding]:
    """A sharded checkpoint of 4 GiB in the page cache; the peer is SHA-256 over every byte of it."""
    checkpoint = write_large_checkpoint(folder / "large")

    def hash_everything() -> None:
        for path in sorted(checkpoint.iterdir()):
            with path.open("rb") as stream:
                hashlib.file_digest(stream, "sha256")

    whole = seconds_of(hash_everything)  # brings what is not there yet into the page cache
    digests = [seconds_of(lambda: checkpoint_digest(checkpoint)) for _ in range(rounds)]
    digests_cpu = [cpu_seconds_of(lambda: checkpoint_digest(checkpoint)) for _ in range(rounds)]
    spread = Spread.of(digests)
    shutil.rmtree(checkpoint)
    return [
        Finding(
            f"digest of {LARGE_SHARDS} GiB in {LARGE_SHARDS} shards, {LARGE_SHARDS * LARGE_TENSORS_PER_SHARD} tensors",
            spread,
            "s",
            3,
            f"<= {DIGEST_TARGET_SECONDS}",
            spread.median <= DIGEST_TARGET_SECONDS,
        ),
        Finding("that digest, CPU time", Spread.of(digests_cpu), "s", 3, "", None),
        Finding("SHA-256 of every byte to that digest", ratio_by_round([whole] * rounds, digests), "x", 0, "", None),
    ]


def compare_lowering_with_copy(folder: Path, rounds: int) -> list[Finding]:
    """A checkpoint of some 200 MB in bfloat16; the peer copies its weights file. Neither waits for the disk."""
    model = replace(
        VARIANTS["qwen3"], hidden_size=1024, intermediate_size=3072, layer_count=8, dtype="bf16", context_length=4096
    )
    checkpoint = write_checkpoint(folder / "middling", model)
    (weights,) = checkpoint.glob("*.safetensors")
    megabytes = weights.stat().st_size / MEGABYTE_BYTES
    findings = []
    for quantisation in QUANTISATIONS:
        lowered, copied = [], []
        for _ in range(rounds):
            copy, bundle = folder / "copy", folder / "bundle"
            copied.append(megabytes / seconds_of(lambda: shutil.copyfile(weights, copy)))  # noqa: B023
            lowered.append(megabytes / seconds_of(lambda: lowered_bundle_of(checkpoint, bundle, quantisation)))  # noqa: B023
            copy.unlink()
            shutil.rmtree(bundle)
        findings += [
            Finding(f"lowering bf16 to {quantisation}, source bytes", Spread.of(lowered), "MB/s", 0, "", None),
            Finding(f"lowering to {quantisation} to file copy", ratio_by_round(lowered, copied), "x", 3, "", None),
        ]
    builds = []
    for _ in range(rounds):
        builds.append(seconds_of(lambda: stored_bundle(resolve(str(checkpoint), folder), folder / "built", "q8_0")))
        shutil.rmtree(folder / "built")
    findings.append(
        Finding(
            f"whole build of {megabytes:.0f} MB to q8_0: process, hashes, disk", Spread.of(builds), "s", 2, "", None
        )
    )
    return findings


def write_large_checkpoint(folder: Path) -> Path:
    """Real bytes on the disk, in the layout of a sharded checkpoint; only its numbers mean nothing."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "tokenizer.json").write_text(json.dumps({"filler": "x" * 9_000_000}))
    weight_map = {}
    block = os.urandom(WRITE_BYTES)
    for shard in range(LARGE_SHARDS):
        name = f"model-{shard + 1:05d}-of-{LARGE_SHARDS:05d}.safetensors"
        each = LARGE_SHARD_BYTES // LARGE_TENSORS_PER_SHARD // 2 * 2
        header = {
            f"model.layers.{shard}.{index}.weight": {
                "dtype": "BF16",
                "shape": [each // 2],
                "data_offsets": [index * each, (index + 1) * each],
            }
            for index in range(LARGE_TENSORS_PER_SHARD)
        }
        weight_map |= dict.fromkeys(header, name)
        content = json.dumps(header).encode()
        with (folder / name).open("wb") as stream:
            stream.write(len(content).to_bytes(8, "little") + content)
            left = each * LARGE_TENSORS_PER_SHARD
            while left:
                stream.write(block[: min(left, WRITE_BYTES)])
                left -= min(left, WRITE_BYTES)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder
