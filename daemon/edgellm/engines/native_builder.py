"""NativeBuilder: makes bundles for the native runtime, in a process of its own that ends with its memory.

``python -m edgellm.engines.native_builder`` is that process: a job as JSON on standard input, progress and the result
as JSON lines on standard output.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgellm import errors
from edgellm.engines.build_process import log_tail, run_build_process
from edgellm.engines.build_profile import AS_IS, BuildProfile, RuntimeKind
from edgellm.engines.builder import BuildOutput, BuildRequest, source_digest
from edgellm.engines.bundle import Bundle
from edgellm.engines.engine_key import EngineKey
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.engines.progress import Progress, ProgressCallback
from edgellm.engines.resources.estimate import Estimate
from edgellm.engines.resources.native_memory import NativeShape, lowering_estimate
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.engines.visual_part import VISUAL_FOLDER
from edgellm.errors import BuildFailedError, ConfigError, EdgeLLMError

if TYPE_CHECKING:
    from edgellm.engines.store import Store

COMPONENT = "llm"
LOG_FILE = "build.log"
AUTO_QUANTISATION = "q8_0"
"""Keeps what 16-bit weights can do, at half their size."""


class NativeBuilder:
    def __init__(self, fingerprint: PlatformFingerprint | None = None) -> None:
        self._fingerprint = fingerprint or PlatformFingerprint.native()

    @property
    def name(self) -> RuntimeKind:
        return "native"

    @property
    def fingerprint(self) -> PlatformFingerprint:
        return self._fingerprint

    def key(self, request: BuildRequest) -> EngineKey:
        profile = resolved_profile(request)
        return EngineKey.of(self._fingerprint, profile, source_digest(request.source), None)

    def plan(self, request: BuildRequest) -> NativePlan:
        from edgellm.engines.lowering import plan_for  # numpy, only when something is built

        profile = resolved_profile(request)
        lowering = plan_for(request.source, profile.quantisation)
        return NativePlan(request.source, profile.quantisation, lowering.checkpoint_digest, lowering.runtime_shape)

    def validate(self, directory: Path) -> None:
        Bundle.load(directory)


@dataclass(frozen=True, slots=True)
class NativePlan:
    source: ModelSource
    quantisation: str
    checkpoint_digest: str
    runtime_shape: NativeShape

    @property
    def estimate(self) -> Estimate:
        shape = self.runtime_shape
        visual_bytes = 0 if shape.vision is None else shape.vision.model_bytes
        return lowering_estimate(shape.model_bytes + visual_bytes, shape.vocab_size)

    def build(self, staging: Path, on_progress: ProgressCallback, *, locks: Sequence[int] = ()) -> BuildOutput:
        job = {
            "kind": self.source.kind.value,
            "path": str(self.source.path),
            "model_id": self.source.model_id,
            "quantisation": self.quantisation,
            "checkpoint_digest": self.checkpoint_digest,
            "directory": str(staging),
        }
        result: dict[str, Any] = {}

        def on_line(line: str) -> None:
            message = json.loads(line)
            if "progress" in message:
                on_progress(Progress(**message["progress"]))
            else:
                result.update(message)

        log = staging / LOG_FILE
        status = run_build_process(
            # -P: whatever lies in the current folder is no module of ours.
            [sys.executable, "-P", "-m", "edgellm.engines.native_builder"],
            log=log,
            locks=locks,
            stdin=json.dumps(job).encode(),
            on_line=on_line,
        )
        if "error" in result:
            raise _error_of(result)
        if status != 0 or "done" not in result:
            raise BuildFailedError(_failure(status, log))
        components = (COMPONENT, VISUAL_FOLDER) if (staging / VISUAL_FOLDER).exists() else (COMPONENT,)
        if log.stat().st_size == 0:
            log.unlink()
            return BuildOutput(components)
        return BuildOutput(components, log_name=LOG_FILE)


def resolved_profile(request: BuildRequest) -> BuildProfile:
    """The profile with what ``auto`` stands for. Raises ConfigError for a quantisation that the source cannot have."""
    asked = request.profile.quantisation
    if request.source.kind is SourceKind.GGUF:
        if asked not in ("auto", AS_IS):
            raise ConfigError(
                f"quantisation {asked!r} applies to safetensors checkpoints; the weights of a GGUF file are served as "
                "they are — leave quantisation at auto"
            )
        return replace(request.profile, quantisation=AS_IS)
    if asked == AS_IS:
        raise ConfigError(f"quantisation {AS_IS!r} applies to GGUF files; choose another for a safetensors checkpoint")
    return replace(request.profile, quantisation=AUTO_QUANTISATION if asked == "auto" else asked)


def has_engine_of_gguf(store: Store, checkpoint_digest: str) -> bool:
    """Whether ``store`` has what this edgellm makes of a GGUF file of that digest, so that the file is not needed."""
    key = EngineKey.of(PlatformFingerprint.native(), BuildProfile(quantisation=AS_IS), checkpoint_digest, None)
    return store.find(key) is not None


def _error_of(result: dict[str, Any]) -> Exception:
    kind = getattr(errors, str(result["error"]), None)
    if isinstance(kind, type) and issubclass(kind, EdgeLLMError):
        return kind(str(result["message"]))
    if result["error"] == "OSError":
        return OSError(int(result["errno"]), str(result["message"]))
    return BuildFailedError(f"the builder failed: {result['message']}")


def _failure(status: int, log: Path) -> str:
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    said = log_tail(log).rpartition("\n")[2]
    return f"the builder {how} before its bundle was complete" + (f": {said}" if said else "")


def main(job_text: bytes, say: Callable[[dict[str, Any]], None]) -> int:
    """The builder's own process: do the job, tell progress and the end. Gives the exit status."""
    from edgellm.engines.lowering import plan_for

    job = json.loads(job_text)
    source = ModelSource(SourceKind(job["kind"]), Path(job["path"]), job["model_id"])
    try:
        plan = plan_for(source, job["quantisation"])
        if plan.checkpoint_digest != job["checkpoint_digest"]:
            raise errors.CheckpointError(f"{source.path}: its files changed before the build began — try again")
        plan.write(Path(job["directory"]), lambda progress: say({"progress": dataclasses.asdict(progress)}))
    except EdgeLLMError as error:
        say({"error": type(error).__name__, "message": str(error)})
        return 1
    except OSError as error:
        say({"error": "OSError", "errno": error.errno or 0, "message": error.strerror or str(error)})
        return 1
    say({"done": True})
    return 0


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer.read(), _say))
