"""Builds of TensorRT bundles through the real store, with NVIDIA's own program in every part but the compiler.

Where TensorRT cannot run, ``stand_in_builder`` takes the builder's place: parser, plan, writers and log are NVIDIA's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.checkpoint_configs import write_files
from tests.contract.nvidia_binary import NvidiaBinary
from tests.contract.nvidia_verdicts import ask
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_gguf import write_gguf

from edgellm.engines.build_process import MemoryLimits
from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.builder import BuildRequest
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.engines.manifest import Manifest
from edgellm.engines.progress import Progress, ignore_progress
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.engines.store import Store
from edgellm.engines.tensorrt.engine_metadata import EngineMetadata
from edgellm.engines.tensorrt.tensorrt_builder import BuilderProgram, TensorRTBuilder, reduced_vocabulary_digest
from edgellm.errors import (
    BuildFailedError,
    BundleDamagedError,
    ConfigError,
    EngineMissingError,
    InsufficientMemoryError,
    RuntimeUnavailableError,
    UnsupportedModelError,
)

REPOSITORY = Path(__file__).parents[2]
DEADLINE_SECONDS = 120
PROFILE = BuildProfile(max_input_len=128, max_kv_cache_capacity=256, max_batch_size=2)
STAND_IN = (sys.executable, "-m", "tests.contract.stand_in_builder")


def fingerprint(sm: int = 87) -> PlatformFingerprint:
    return PlatformFingerprint.tensorrt(
        wheel_version="0.11.0",
        payload_id="jetson-orin-jp72-cu13-sm87",
        tensorrt_version="10.16.0.72",
        cuda_runtime="libcudart.so.13",
        sm=sm,
        l4t="R39.2",
    )


@pytest.fixture
def program(nvidia_binary: NvidiaBinary, tmp_path: Path) -> BuilderProgram:
    path = os.pathsep.join((str(nvidia_binary.site), str(REPOSITORY)))
    environment = {**os.environ, "PYTHONPATH": path}
    return BuilderProgram(STAND_IN, logs=tmp_path / "logs", environment=environment)


def with_fault(program: BuilderProgram, fault: str) -> BuilderProgram:
    return replace(program, environment={**(program.environment or {}), "STAND_IN_FAULT": fault})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    # What a real builder takes is more than these tests need of the machine that runs them.
    return Store(tmp_path / "engines", (), read_available=lambda: None)


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    return ModelSource(SourceKind.SAFETENSORS, write_checkpoint(tmp_path / "tiny", VARIANTS["qwen3"]), "org/tiny")


def described(folder: Path, config: dict[str, Any]) -> ModelSource:
    path = write_files(folder, {"config.json": {"hidden_size": 64, **config}, "tokenizer.json": {}})
    return ModelSource(SourceKind.SAFETENSORS, path, folder.name)


def test_a_bundle_is_built_published_and_found_again(
    program: BuilderProgram, store: Store, source: ModelSource, nvidia_binary: NvidiaBinary
) -> None:
    told: list[Progress] = []
    request = BuildRequest(source, PROFILE)
    with store.prepare(TensorRTBuilder(program, fingerprint()), request, on_progress=told.append) as lease:
        directory = lease.directory
        manifest = Manifest.read(directory / "manifest.json")
        assert (manifest.builder, manifest.components, manifest.needs_checkpoint) == ("tensorrt", ("llm",), True)
        assert manifest.log_name == "build.log"
        assert {"llm.engine", "config.json", "tokenizer.json", "build.log"} <= set(manifest.files)
        assert "Building component llm" in (directory / "build.log").read_text()
        metadata = EngineMetadata.load(directory)
        assert (metadata.model_type, metadata.max_input_len, metadata.max_batch_size) == ("qwen3", 128, 2)
        assert metadata.vocab_size is not None
        options = {"max_input_len": 128, "max_kv_cache_capacity": 256, "max_batch_size": 2}
        case = {"model_dir": str(source.path), "bundle_dir": str(directory), "options": options}
        assert ask(nvidia_binary.site, "is_ready", [case]) == [True]
    messages = [progress.message for progress in told if progress.stage == "build"]
    assert messages[0] == "engine 1 of 1 (llm): reading the checkpoint"
    assert "engine 1 of 1 (llm): compiling, which takes minutes" in messages
    # A hit needs no builder: this one could not even be started.
    absent = replace(program, command=("/nonexistent/builder",))
    with store.prepare(TensorRTBuilder(absent, fingerprint()), request) as lease:
        assert lease.directory == directory


@pytest.mark.parametrize(
    "change",
    [
        lambda request: (replace(request, profile=replace(PROFILE, max_batch_size=3)), fingerprint()),
        lambda request: (replace(request, profile=replace(PROFILE, max_lora_rank=8)), fingerprint()),
        lambda request: (request, fingerprint(sm=110)),
    ],
)
def test_another_profile_or_platform_is_a_miss_and_says_in_what(
    change: Any, program: BuilderProgram, store: Store, source: ModelSource
) -> None:
    request = BuildRequest(source, PROFILE)
    store.prepare(TensorRTBuilder(program, fingerprint()), request).close()
    other, platform = change(request)
    with pytest.raises(EngineMissingError, match=r"differs in (profile|platform)\."):
        store.prepare(TensorRTBuilder(program, platform), other, allow_build=False)


def test_a_speculative_pair_with_encoder_is_built_at_once(
    program: BuilderProgram, store: Store, tmp_path: Path
) -> None:
    source = described(tmp_path / "vision", {"model_type": "qwen3_vl"})
    draft = described(tmp_path / "draft", {"model_type": "qwen3", "block_size": 8})
    profile = replace(PROFILE, spec_type="dflash", max_image_tokens=600, max_verify_tree_size=8)
    told: list[Progress] = []
    request = BuildRequest(source, profile, draft)
    with store.prepare(TensorRTBuilder(program, fingerprint()), request, on_progress=told.append) as lease:
        manifest = Manifest.read(lease.directory / "manifest.json")
        assert manifest.components == ("spec_base", "spec_draft", "visual")
        metadata = EngineMetadata.load(lease.directory)
    assert metadata.speculation.method == "dflash"
    assert metadata.speculation.max_verify_tree_size == 8
    assert (metadata.max_image_tokens, metadata.max_image_tokens_per_image) == (600, 512)
    assert {"engine 3 of 3 (visual): reading the checkpoint"} <= {progress.message for progress in told}
    unpaired = replace(request, draft=None)
    with pytest.raises(ConfigError, match=r"speculative_config\.model: dflash takes its draft"):
        store.prepare(TensorRTBuilder(program, fingerprint()), unpaired)


def test_a_family_that_only_the_builder_knows_is_checked_by_its_report(
    program: BuilderProgram, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgellm.engines.tensorrt import tensorrt_builder

    monkeypatch.setattr(tensorrt_builder, "checkpoint_components", lambda folder: None)
    for method, components in (("none", ("llm", "visual")), ("mtp", ("spec_base", "spec_draft", "visual"))):
        source = described(tmp_path / f"later-{method}", {"model_type": "qwen3_5"})
        request = BuildRequest(source, replace(PROFILE, spec_type=method))
        with store.prepare(TensorRTBuilder(program, fingerprint()), request) as lease:
            assert Manifest.read(lease.directory / "manifest.json").components == components


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("raise", BuildFailedError, r"failed at engine 1 of 1 \(llm\): RuntimeError: build_serialized_network"),
        ("kill", BuildFailedError, r"was killed by signal 9 at engine 1 of 1 \(llm\), as the kernel does when memory"),
        ("crash", BuildFailedError, r"was killed by signal 11 at engine 1 of 1 \(llm\); the last it said: "),
        ("remove:llm.engine", BundleDamagedError, r"llm\.engine: missing or empty: the engine of llm"),
        ("remove:config.json", BundleDamagedError, r"config\.json: .*: the configuration of llm"),
        ("memory", InsufficientMemoryError, r"memory ran out in NVIDIA's builder"),
    ],
)
def test_a_build_that_fails_publishes_nothing_and_keeps_its_output(
    fault: str, error: type[Exception], message: str, program: BuilderProgram, store: Store, source: ModelSource
) -> None:
    builder = TensorRTBuilder(with_fault(program, fault), fingerprint())
    with pytest.raises(error, match=message) as failure:
        store.prepare(builder, BuildRequest(source, PROFILE))
    assert store.entries() == []
    assert not [path for path in store.writable.iterdir() if path.is_dir()]
    assert program.logs is not None
    (kept,) = program.logs.glob("*.log")
    assert str(failure.value).endswith(f"; its output is in {kept}")
    assert "Building component llm" in kept.read_text()
    assert "Traceback" not in str(failure.value)


def test_what_the_builder_does_not_take_is_told_apart(program: BuilderProgram, store: Store, tmp_path: Path) -> None:
    unknown = described(tmp_path / "unknown", {"model_type": "gpt_oss"})
    with pytest.raises(UnsupportedModelError, match=r"unknown: NVIDIA's builder refuses it: ValueError: .*gpt_oss"):
        store.prepare(TensorRTBuilder(program, fingerprint()), BuildRequest(unknown, PROFILE))
    encoder = described(tmp_path / "encoder", {"model_type": "qwen3_vl", "architectures": ["Qwen3VLVisionModel"]})
    with pytest.raises(UnsupportedModelError, match=r"neither a text model nor a whole speech model \(it has visual\)"):
        store.prepare(TensorRTBuilder(program, fingerprint()), BuildRequest(encoder, PROFILE))
    gguf = ModelSource(SourceKind.GGUF, write_gguf(tmp_path / "a.gguf", VARIANTS["qwen3"]), "a")
    with pytest.raises(UnsupportedModelError, match=r"a GGUF file runs on the native runtime"):
        store.prepare(TensorRTBuilder(program, fingerprint()), BuildRequest(gguf, PROFILE))


def test_a_builder_with_other_arguments_is_told(program: BuilderProgram, store: Store, source: ModelSource) -> None:
    renamed = replace(program, command=(*STAND_IN, "--no-such-option"))
    with pytest.raises(BuildFailedError, match=r"does not take the arguments of this edgellm \(.*--no-such-option"):
        store.prepare(TensorRTBuilder(renamed, fingerprint()), BuildRequest(source, PROFILE))


def test_a_builder_that_cannot_be_started_is_told(program: BuilderProgram, store: Store, source: ModelSource) -> None:
    absent = replace(program, command=("/nonexistent/builder",))
    with pytest.raises(BuildFailedError, match=r"/nonexistent/builder cannot be started: No such file"):
        store.prepare(TensorRTBuilder(absent, fingerprint()), BuildRequest(source, PROFILE))


def test_nvidias_own_program_without_tensorrt_is_told(
    program: BuilderProgram, store: Store, source: ModelSource
) -> None:
    real = replace(program, command=(sys.executable, "-m", "experimental.builder"))
    with pytest.raises(RuntimeUnavailableError, match=r"cannot run here \(.*TensorRT Python bindings are required"):
        store.prepare(TensorRTBuilder(real, fingerprint()), BuildRequest(source, PROFILE))


@pytest.mark.parametrize("limits", [MemoryLimits(floor_bytes=1 << 60), MemoryLimits(0, ceiling_bytes=200 << 20)])
def test_a_build_that_would_starve_the_board_is_ended(
    limits: MemoryLimits, program: BuilderProgram, store: Store, source: ModelSource
) -> None:
    hungry = replace(with_fault(program, "hold"), limits=limits)
    with pytest.raises(InsufficientMemoryError, match=r"the build was ended: .* MiB"):
        store.prepare(TensorRTBuilder(hungry, fingerprint()), BuildRequest(source, PROFILE))
    assert store.entries() == []


def test_a_build_that_does_not_fit_is_refused_with_numbers_before_it_starts(
    program: BuilderProgram, store: Store, source: ModelSource
) -> None:
    absent = replace(program, command=("/nonexistent/builder",))
    request = BuildRequest(source, PROFILE)
    small = Store(store.writable, (), read_available=lambda: 1 << 30)
    with pytest.raises(InsufficientMemoryError, match=r"org/tiny: builder needs \d+ MiB of memory, 1024 MiB are"):
        small.prepare(TensorRTBuilder(absent, fingerprint()), request)
    estimate = TensorRTBuilder(program, fingerprint()).plan(request).estimate
    assert estimate.memory_bytes > 1 << 30
    config = json.loads((source.path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "FP8"}
    (source.path / "config.json").write_text(json.dumps(config))
    compiled_in = TensorRTBuilder(program, fingerprint()).plan(request).estimate
    assert compiled_in.disk_bytes - estimate.disk_bytes == (source.path / "model.safetensors").stat().st_size


class Cancelled(Exception):
    pass


def test_a_cancelled_build_is_gone_with_everything_it_started(
    program: BuilderProgram, store: Store, source: ModelSource
) -> None:
    builders: list[int] = []
    niceness: list[int] = []

    def cancel(progress: Progress) -> None:
        if "compiling" in progress.message:
            builders.extend(builders_below(os.getpid()))
            niceness.extend(os.getpriority(os.PRIO_PROCESS, pid) for pid in builders)
            raise Cancelled

    builder = TensorRTBuilder(with_fault(program, "hang"), fingerprint())
    with pytest.raises(Cancelled):
        store.prepare(builder, BuildRequest(source, PROFILE), on_progress=cancel)
    assert builders
    assert min(niceness) > os.getpriority(os.PRIO_PROCESS, 0)
    wait_until(lambda: not any(is_running(pid) for pid in builders))
    assert not [path for path in store.writable.iterdir() if path.is_dir()]


PARENT = """
import sys
from pathlib import Path
from tests.contract import test_tensorrt_builder as shared
from edgellm.engines.tensorrt.tensorrt_builder import BuilderProgram, TensorRTBuilder
from edgellm.engines.builder import BuildRequest
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.engines.store import Store
import os
environment = {**os.environ, "PYTHONPATH": sys.argv[3], "STAND_IN_FAULT": "hang"}
program = BuilderProgram(shared.STAND_IN, environment=environment)
builder = TensorRTBuilder(program, shared.fingerprint())
source = ModelSource(SourceKind.SAFETENSORS, Path(sys.argv[2]), "org/tiny")
Store(Path(sys.argv[1]), (), read_available=lambda: None).prepare(
    builder, BuildRequest(source, shared.PROFILE), on_progress=lambda progress: print(progress.message, flush=True)
)
"""


def test_a_builder_does_not_outlive_the_process_that_asked_for_it(
    program: BuilderProgram, store: Store, source: ModelSource
) -> None:
    """And what it left is cleaned by the next build, which succeeds."""
    path = (program.environment or {})["PYTHONPATH"]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(store.writable), str(source.path), path],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None
        assert any("compiling" in line for line in iter(parent.stdout.readline, ""))
        builders = builders_below(parent.pid)
        assert builders
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait(timeout=DEADLINE_SECONDS)
        if parent.stdout is not None:
            parent.stdout.close()
    wait_until(lambda: not any(is_running(pid) for pid in builders))
    assert [path for path in store.writable.iterdir() if path.is_dir()]
    with store.prepare(TensorRTBuilder(program, fingerprint()), BuildRequest(source, PROFILE)) as lease:
        assert [path for path in store.writable.iterdir() if path.is_dir()] == [lease.directory]


def test_a_bundle_is_checked_by_what_it_shows(program: BuilderProgram, store: Store, source: ModelSource) -> None:
    builder = TensorRTBuilder(program, fingerprint())
    with store.prepare(builder, BuildRequest(source, PROFILE)) as lease:
        builder.validate(lease.directory)
        engine = lease.directory / "llm.engine"
        engine.rename(engine.with_suffix(".gone"))
        with pytest.raises(BundleDamagedError, match=r"llm\.engine: missing or empty"):
            builder.validate(lease.directory)


def test_a_reduced_vocabulary_is_keyed_by_what_it_holds(
    program: BuilderProgram, source: ModelSource, tmp_path: Path
) -> None:
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"vocab_map\.safetensors does not exist"):
        reduced_vocabulary_digest(folder)
    (folder / "vocab_map.safetensors").write_bytes(b"map")
    profile = replace(PROFILE, reduced_vocab_digest=reduced_vocabulary_digest(folder))
    builder = TensorRTBuilder(program, fingerprint(), reduced_vocab=folder)
    key = builder.key(BuildRequest(source, profile))
    assert key.inputs["profile.reduced_vocab_digest"] == profile.reduced_vocab_digest
    assert str(tmp_path) not in json.dumps(dict(key.inputs))
    for profile in (PROFILE, replace(PROFILE, reduced_vocab_digest="0" * 64)):
        with pytest.raises(ConfigError, match="reduced_vocab_dir"):
            builder.key(BuildRequest(source, profile))


def test_only_the_last_logs_are_kept(program: BuilderProgram, store: Store, source: ModelSource) -> None:
    assert program.logs is not None
    program.logs.mkdir()
    for number in range(12):
        (program.logs / f"older-{number}.log").write_text("old")
    builder = TensorRTBuilder(with_fault(program, "raise"), fingerprint())
    with pytest.raises(BuildFailedError):
        store.prepare(builder, BuildRequest(source, PROFILE), on_progress=ignore_progress)
    kept = list(program.logs.glob("*.log"))
    assert len(kept) == 10
    assert sum(path.read_text() != "old" for path in kept) == 1


def builders_below(pid: int) -> list[int]:
    """The builder processes among the children of ``pid``."""
    children = [
        child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [int(child) for child in children if b"stand_in" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
