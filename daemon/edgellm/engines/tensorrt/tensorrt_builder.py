"""TensorRTBuilder: makes bundles with NVIDIA's builder, a program of its own that is watched and never imported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgellm.engines.build_process import MemoryLimits, log_tail, run_build_process
from edgellm.engines.build_profile import BuildProfile, RuntimeKind
from edgellm.engines.builder import BuildOutput, BuildRequest, source_digest
from edgellm.engines.engine_key import EngineKey
from edgellm.engines.file_digest import whole_file_sha256
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.engines.json_file import read_object
from edgellm.engines.progress import ProgressCallback
from edgellm.engines.resources.estimate import Estimate
from edgellm.engines.resources.tensorrt_memory import build_estimate
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.engines.tensorrt.arguments import BuildFolders, builder_arguments, check_profile
from edgellm.engines.tensorrt.build_log import BuildLog
from edgellm.engines.tensorrt.bundle_check import check_build
from edgellm.engines.tensorrt.components import SPEECH_COMPONENTS, TEXT_COMPONENTS, checkpoint_components
from edgellm.engines.tensorrt.engine_metadata import EngineMetadata
from edgellm.engines.tensorrt.layout import check_layout, components_begun
from edgellm.engines.tensorrt.speculation import NO_METHOD
from edgellm.errors import (
    BuildFailedError,
    ConfigError,
    EdgeLLMError,
    InsufficientMemoryError,
    RuntimeUnavailableError,
    UnsupportedModelError,
)

LOG_FILE = "build.log"
VOCABULARY_FILE = "vocab_map.safetensors"
MEMORY_FLOOR_BYTES = 512 << 20
"""What a build leaves to the rest of a board: its GPU shares this memory, and fails in ways of its own without it."""
MAX_KEPT_LOGS = 10
USAGE_STATUS = 2
_WEIGHT_SUFFIXES = (".safetensors", ".bin")
_OUT_OF_MEMORY = ("out of memory", "outofmemory", "memoryerror", "bad_alloc", "cannot allocate memory")
# Where its errors about drivers, libraries and payloads live.
_PLATFORM_FAILURE = "tensorrt_edgellm._native."
# Lines arrive when they are said; and a build takes nothing from the network.
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class BuilderProgram:
    """How NVIDIA's builder is run: ``command`` without its arguments, its program an absolute path.

    ``plugin`` is given for packages built from source, whose builder cannot find it. ``logs`` keeps the output of
    builds that failed; None keeps none.
    """

    command: tuple[str, ...]
    plugin: Path | None = None
    logs: Path | None = None
    environment: Mapping[str, str] | None = None
    limits: MemoryLimits = field(default_factory=lambda: MemoryLimits(MEMORY_FLOOR_BYTES))


class TensorRTBuilder:
    """``reduced_vocab`` is the folder of a reduced vocabulary, whose digest the profile then names."""

    def __init__(
        self, program: BuilderProgram, fingerprint: PlatformFingerprint, *, reduced_vocab: Path | None = None
    ) -> None:
        self._program = program
        self._fingerprint = fingerprint
        self._reduced_vocab = reduced_vocab

    @property
    def name(self) -> RuntimeKind:
        return "tensorrt"

    @property
    def fingerprint(self) -> PlatformFingerprint:
        return self._fingerprint

    def key(self, request: BuildRequest) -> EngineKey:
        check_profile(request.profile, has_draft=request.draft is not None)
        _check_source(request.source)
        if request.draft is not None:
            _check_source(request.draft)
        self._check_vocabulary(request.profile)
        draft_digest = None if request.draft is None else source_digest(request.draft)
        return EngineKey.of(self._fingerprint, request.profile, source_digest(request.source), draft_digest)

    def plan(self, request: BuildRequest) -> TensorRTPlan:
        components = checkpoint_components(request.source.path)
        if components is not None and not _has_a_runtime(components):
            raise UnsupportedModelError(
                f"{request.source.path}: neither a text model nor a whole speech model "
                f"(it has {', '.join(components) or 'nothing to build'})"
            )
        return TensorRTPlan(self._program, request, components, self._reduced_vocab)

    def validate(self, directory: Path) -> None:
        """Check what a folder shows by itself; ``TensorRTPlan.build`` holds it against the model and the profile."""
        EngineMetadata.load(directory)
        check_layout(directory, components_begun(directory))

    def _check_vocabulary(self, profile: BuildProfile) -> None:
        if (profile.reduced_vocab_digest is None) != (self._reduced_vocab is None):
            raise ConfigError("reduced_vocab_dir: the folder of the vocabulary and its digest belong together")
        if self._reduced_vocab is None:
            return
        digest = reduced_vocabulary_digest(self._reduced_vocab)
        if digest != profile.reduced_vocab_digest:
            raise ConfigError(f"reduced_vocab_dir: {self._reduced_vocab} holds another vocabulary than was asked for")


@dataclass(frozen=True, slots=True)
class TensorRTPlan:
    """``components`` are those of the checkpoint, None for a family that only the builder knows."""

    program: BuilderProgram
    request: BuildRequest
    components: tuple[str, ...] | None
    reduced_vocab: Path | None = None

    @property
    def estimate(self) -> Estimate:
        sources = [source.path for source in (self.request.source, self.request.draft) if source is not None]
        return build_estimate(baked_weight_bytes=sum(_weight_bytes(path) for path in sources if _is_compiled_in(path)))

    def build(self, staging: Path, on_progress: ProgressCallback, *, locks: Sequence[int] = ()) -> BuildOutput:
        request, program = self.request, self.program
        folders = BuildFolders(
            model=request.source.path,
            engine=staging,
            draft=request.draft.path if request.draft else None,
            reduced_vocab=self.reduced_vocab,
            plugin=program.plugin,
        )
        log, said = staging / LOG_FILE, BuildLog(on_progress)
        try:
            status = run_build_process(
                [*program.command, *builder_arguments(request.profile, folders)],
                log=log,
                locks=locks,
                on_line=said.read,
                on_log_line=said.read,
                environment={**(program.environment or os.environ), **_ENVIRONMENT},
                limits=program.limits,
            )
            if status != 0:
                raise self._failure(status, said, log)
            components = self._check(staging, said)
        except EdgeLLMError as error:
            kept = _keep_log(log, program.logs, request.source.model_id)
            raise type(error)(f"{error}{kept}") from None
        return BuildOutput(components, needs_checkpoint=True, log_name=LOG_FILE)

    def _check(self, staging: Path, said: BuildLog) -> tuple[str, ...]:
        """Hold what is there against the model, or for families that are not listed against the builder's report."""
        speculative = self.request.profile.spec_type != NO_METHOD
        components = self.components
        if components is None:
            components = tuple(dict.fromkeys("llm" if name.startswith("spec_") else name for name in said.components))
        made = check_build(staging, components, self.request.profile)
        unreported = [name for name in made if name not in said.components]
        if unreported:
            raise BuildFailedError(f"{self._model}: the builder ended without a report of {', '.join(unreported)}")
        if speculative and "spec_draft" not in made:
            raise BuildFailedError(f"{self._model}: the builder made no draft engine")
        return made

    @property
    def _model(self) -> str:
        return self.request.source.model_id

    def _failure(self, status: int, said: BuildLog, log: Path) -> Exception:
        reason = said.failure or log_tail(log).rpartition("\n")[2] or "it said nothing"
        if status < 0:
            hint = (
                ", as the kernel does when memory runs out: stop what else runs on this board, or build with a smaller "
                "max_kv_cache_capacity or max_batch_size"
                if -status == signal.SIGKILL
                else f"; the last it said: {reason}"
            )
            return BuildFailedError(
                f"{self._model}: NVIDIA's builder was killed by signal {-status} at {said.position}{hint}"
            )
        if any(marker in reason.casefold() for marker in _OUT_OF_MEMORY):
            return InsufficientMemoryError(
                f"{self._model}: memory ran out in NVIDIA's builder ({reason}) — stop what else runs on this board, or "
                "build with a smaller profile"
            )
        if status == USAGE_STATUS:
            return BuildFailedError(
                f"{self._model}: NVIDIA's builder does not take the arguments of this edgellm ({reason}) — install a "
                "version of tensorrt-edgellm that it supports"
            )
        if _PLATFORM_FAILURE in reason:
            return RuntimeUnavailableError(f"NVIDIA's builder cannot run here ({reason}) — see edgellm doctor")
        if not said.planned and reason.startswith("ValueError: "):
            return UnsupportedModelError(f"{self._model}: NVIDIA's builder refuses it: {reason}")
        return BuildFailedError(f"{self._model}: NVIDIA's builder failed at {said.position}: {reason}")


def reduced_vocabulary_digest(folder: Path) -> str:
    """Give what a profile names a reduced vocabulary by. Raises ConfigError for a folder without one."""
    path = folder / VOCABULARY_FILE
    if not path.is_file():
        raise ConfigError(f"reduced_vocab_dir: {path} does not exist")
    return whole_file_sha256(path)


def _check_source(source: ModelSource) -> None:
    if source.kind is not SourceKind.SAFETENSORS:
        raise UnsupportedModelError(
            f"{source.path}: TensorRT engines are built from safetensors checkpoints; a GGUF file runs on the native "
            "runtime — give the checkpoint, or set runtime to native"
        )


def _has_a_runtime(components: tuple[str, ...]) -> bool:
    return bool(TEXT_COMPONENTS & set(components)) or set(components) >= SPEECH_COMPONENTS


def _is_compiled_in(checkpoint: Path) -> bool:
    """Tell formats whose weights become part of the engine; those of others stay in the checkpoint."""
    for name, section in (("config.json", "quantization_config"), ("hf_quant_config.json", "quantization")):
        path = checkpoint / name
        if path.is_file() and "fp8" in json.dumps(read_object(path).get(section)).casefold():
            return True
    return False


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in _WEIGHT_SUFFIXES)


def _keep_log(log: Path, logs: Path | None, model_id: str) -> str:
    """Copy the output out of the staging folder, which is about to go; give the words that say where it is."""
    if logs is None or not log.is_file() or log.stat().st_size == 0:
        return ""
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in model_id)[:80].strip(".-")
    kept = logs / f"{name or 'model'}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.log"
    try:
        logs.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, kept)
        for old in sorted(logs.glob("*.log"), key=lambda path: path.stat().st_mtime)[:-MAX_KEPT_LOGS]:
            with suppress(OSError):
                old.unlink()
    except OSError:
        return ""
    return f"; its output is in {kept}"
