"""Estimates against what a real load, real requests and a real lowering take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.real_model import smollm2_file
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.native.sanitizer import measures_memory

from edgellm.engines.bundle import Bundle
from edgellm.engines.resources.estimate import SPARE_MEMORY_BYTES, Estimate
from edgellm.engines.resources.native_memory import lowering_estimate
from edgellm.errors import InsufficientMemoryError
from edgellm.runtime.llm import LLM
from edgellm.runtime.llm_options import LLMOptions, RuntimeShape
from edgellm.runtime.load_admission import native_load_estimate, native_shape, require_memory_for_load

DEADLINE_SECONDS = 300

# Loads in a process of its own, so that nothing else moves its numbers; sequences of every slot are then filled.
PROGRAM = """
import json, sys, tokenizers
import edgellm.runtime.loader
from edgellm import LLM, SamplingParams

def resident():
    fields = dict(line.split(':') for line in open('/proc/self/smaps_rollup').read().splitlines()[1:])
    return {name: int(fields[name].split()[0]) * 1024 for name in ('Rss', 'Anonymous')}

before = resident()
llm = LLM(sys.argv[1], cache_dir=sys.argv[2], max_batch_size=4, max_kv_cache_capacity=int(sys.argv[3]))
loaded = resident()
answers = llm.generate([f'{i} ' + 'word ' * int(sys.argv[4]) for i in range(4)], SamplingParams(max_tokens=2))
filled = resident()
print(json.dumps({'load': loaded['Rss'] - before['Rss'], 'fill': filled['Anonymous'] - loaded['Anonymous'],
                  'tokens': sum(answer.prompt_tokens for answer in answers)}))
"""


def measured(model: Path, cache: Path, capacity: int, words: int) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model), str(cache), str(capacity), str(words)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return answer


def part(estimate: Estimate, name: str) -> int:
    return next(one.size_bytes for one in estimate.memory if one.name == name)


def at_load_bytes(estimate: Estimate) -> int:
    """Without what prompts make resident."""
    return sum(one.size_bytes for one in estimate.memory if one.name not in ("KV pool", "scratch", "embedding"))


def bundle_of(model: Path, cache: Path) -> Bundle:
    with LLM(str(model), cache_dir=str(cache)) as llm:
        return Bundle.load(Path(llm.bundle_dir))


def shape_of(bundle: Bundle, **options: Any) -> RuntimeShape:
    return LLMOptions(bundle.model_id, max_batch_size=4, **options).shape("native", bundle.context_length)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("estimate") / "tiny", VARIANTS["llama"])


@measures_memory
def test_a_load_takes_what_was_estimated(tiny: Path, tmp_path: Path) -> None:
    """Within a factor of 2 for a model that weighs nothing, and of 1.3 for a real one."""
    bundle = bundle_of(tiny, tmp_path)
    took = measured(tiny, tmp_path, 1024, 100)
    estimate = native_load_estimate(native_shape(bundle), shape_of(bundle, max_kv_cache_capacity=1024))
    at_load = at_load_bytes(estimate)
    print(f"tiny: estimated {at_load >> 20} MiB, took {took['load'] >> 20} MiB")
    assert at_load / 2 <= took["load"] <= at_load * 2


@pytest.mark.model
@measures_memory
def test_a_load_and_full_sequences_of_the_default_model_take_what_was_estimated(tmp_path: Path) -> None:
    model = smollm2_file()
    bundle = bundle_of(model, tmp_path)
    took = measured(model, tmp_path, 512, 450)
    estimate = native_load_estimate(native_shape(bundle), shape_of(bundle, max_kv_cache_capacity=512))
    at_load = at_load_bytes(estimate)
    print(f"default: estimated {at_load >> 20} MiB, took {took['load'] >> 20} MiB")
    assert at_load / 1.3 <= took["load"] <= at_load * 1.3
    # Filling every sequence makes the pool resident, and the scratch as far as it is used.
    assert took["tokens"] >= 4 * 440
    pool = took["tokens"] * native_shape(bundle).kv_bytes_per_token
    scratch = part(estimate, "scratch")
    print(f"default: pool {pool >> 20} MiB and scratch {scratch >> 20} MiB, took {took['fill'] >> 20} MiB")
    assert pool * 0.9 <= took["fill"] <= (pool + scratch) * 1.3


def test_a_load_that_does_not_fit_names_numbers_and_the_setting_that_would_fit(tiny: Path, tmp_path: Path) -> None:
    bundle = bundle_of(tiny, tmp_path)
    shape = shape_of(bundle)
    estimate = native_load_estimate(native_shape(bundle), shape)
    enough = estimate.memory_bytes + SPARE_MEMORY_BYTES
    require_memory_for_load(bundle, shape, lambda: enough)
    with pytest.raises(InsufficientMemoryError, match="set max_kv_cache_capacity to") as caught:
        require_memory_for_load(bundle, shape, lambda: enough - 1)
    fitting = int(str(caught.value).split("max_kv_cache_capacity to ")[1].split()[0])
    assert 0 < fitting < shape.limits.max_kv_cache_capacity
    require_memory_for_load(bundle, shape_of(bundle, max_kv_cache_capacity=fitting), lambda: enough - 1)
    with pytest.raises(InsufficientMemoryError, match="choose a smaller model or quantisation"):
        require_memory_for_load(bundle, shape, lambda: SPARE_MEMORY_BYTES)


def test_a_pool_beyond_this_machine_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    """A model of a long context, in a real process: a million tokens of 256 sequences fit nowhere."""
    variant = replace(VARIANTS["llama"], context_length=1 << 20, layer_count=8)
    model = write_checkpoint(tmp_path / "long", variant)
    command = [
        *(sys.executable, "-m", "edgellm", "serve", "--port", "0", str(model), "--cache-dir", str(tmp_path / "cache")),
        *("--max-kv-cache-capacity", str(1 << 20), "--max-batch-size", "256"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == InsufficientMemoryError.exit_code, done.stderr
    assert "load needs" in done.stderr
    assert "set max_kv_cache_capacity to" in done.stderr
    assert "Traceback" not in done.stderr


@measures_memory
@pytest.mark.parametrize(("share", "fits"), [(1.0, True), (0.05, False)])
def test_lowering_keeps_within_its_estimate(tmp_path: Path, share: float, fits: bool) -> None:
    """Its private memory is limited to the estimate, or to a small part of it."""
    variant = replace(VARIANTS["llama"], hidden_size=1024, intermediate_size=4096, layer_count=4)
    model = write_checkpoint(tmp_path / "wide", variant)
    (tmp_path / "bundle").mkdir()
    limit = int(lowering_estimate(0, variant.vocab_size).memory_bytes * share)
    program = (
        "import resource, sys; from pathlib import Path\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))\n"
        "from edgellm.engines.lowering import plan_for; from edgellm.engines.source import resolve\n"
        "source = resolve(sys.argv[1], Path('none'))\n"
        "plan_for(source, 'q8_0').write(Path(sys.argv[2]), lambda progress: None)\n"
    )
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(model), str(tmp_path / "bundle")]
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_SECONDS, check=False, env=env)
    assert (done.returncode == 0) is fits, done.stderr.decode()
