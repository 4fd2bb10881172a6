"""load_transcriber: the engine that fits a model of speech recognition."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.progress import ProgressCallback, ignore_progress
from edgellm.engines.tensorrt.speech_checkpoint import is_transcription_checkpoint
from edgellm.runtime.llm_options import DEFAULT_READ_ONLY_ENGINE_DIRS, LLMOptions
from edgellm.runtime.tensorrt_transcriber import load_tensorrt_transcriber
from edgellm.runtime.transcriber import Transcriber
from edgellm.runtime.whisper_transcriber import WhisperTranscriber


def load_transcriber(
    model: str,
    *,
    cache_dir: str | None = None,
    threads: int | None = None,
    build_on_start: bool = True,
    read_only_engine_dirs: Sequence[str] = DEFAULT_READ_ONLY_ENGINE_DIRS,
    max_input_len: int | None = None,
    max_kv_cache_capacity: int | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> Transcriber:
    """A Whisper model on the CPU, or a checkpoint folder of a ``qwen3_asr`` model, which needs TensorRT.

    The lengths are those that its engine is compiled for.

    Raises ModelSourceError, CheckpointError, UnsupportedModelError, or RuntimeUnavailableError without the ``audio``
    extra.
    """
    folder = Path(cache_dir).expanduser() if cache_dir else default_cache_dir(os.environ)
    if not is_transcription_checkpoint(model, models_dir(folder)):
        return WhisperTranscriber(
            model, cache_dir=cache_dir, threads=threads, build_on_start=build_on_start, on_progress=on_progress
        )
    launch = LLMOptions(
        model=model,
        cache_dir=str(folder),
        build_on_start=build_on_start,
        read_only_engine_dirs=tuple(read_only_engine_dirs),
        max_input_len=max_input_len,
        max_kv_cache_capacity=max_kv_cache_capacity,
    )
    return load_tensorrt_transcriber(launch, on_progress)
