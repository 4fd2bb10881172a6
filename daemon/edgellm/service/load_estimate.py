"""How much memory a model will take, found out in a process of its own: the daemon loads no runtime for it.

Run as ``python -m edgellm.service.load_estimate`` with Settings of one model as JSON on standard input. For about a
second it takes as much as a worker without a model, beside whatever is loaded, and one runs at a time: that is part of
what is left to the rest of the system (SPARE_MEMORY_BYTES), and nothing of it is left when the model's worker starts.
"""

from __future__ import annotations

import asyncio
import json
import sys

from edgellm.config import ModelSettings, Settings
from edgellm.engines.cache_directory import models_dir
from edgellm.engines.catalogue import CATALOGUE, locate
from edgellm.engines.piper_voice import resolve_piper_voice
from edgellm.engines.progress import ignore_progress
from edgellm.engines.resources.estimate import Estimate
from edgellm.engines.source import is_fetchable
from edgellm.engines.whisper_files import WEIGHTS_FILE
from edgellm.engines.whisper_folder import resolve_whisper
from edgellm.errors import EdgeLLMError, ModelSourceError
from edgellm.runtime.phase_estimates import phase_estimates
from edgellm.service.engine_store import engine_store
from edgellm.service.model_builds import build_of, load_options
from edgellm.service.model_kinds import has_sound_engine, kind_of
from edgellm.serving.worker.conversion import load_error

# Parts that replicas of a model map together.
_SHARED_PARTS = frozenset({"weights", "embedding"})
# The interpreter and its modules in each worker process: measured with a model of no weight to speak of.
WORKER_PROCESS_BYTES = 32 << 20
# Libraries, and what a stretch of sound takes on its way through a small Whisper model: measured with tiny.en.
TRANSCRIBER_BYTES = 160 << 20
# Libraries, and what the longest part of a text takes on its way through a voice of medium quality: measured.
VOICE_BYTES = 224 << 20


async def estimate_load_bytes(model: ModelSettings, settings: Settings) -> int | None:
    """Bytes of all replicas; None where it is not known before the model is built or fetched.

    Raises the error that the model cannot be loaded for. A caller that is cancelled leaves no process behind.
    """
    command = (sys.executable, "-P", "-m", "edgellm.service.load_estimate")
    alone = settings.model_copy(update={"models": (model,)})
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        output, _ = await process.communicate(alone.model_dump_json().encode())
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    try:
        answer = json.loads(output)
    except ValueError:
        return None
    if "code" in answer:
        raise load_error(answer["code"], answer["message"])
    known: int | None = answer["memory_bytes"]
    return known


def load_bytes(model: ModelSettings, settings: Settings) -> int | None:
    """The same, in this process."""
    kind = "auto" if has_sound_engine(model, settings) else kind_of(model, settings)
    if kind == "asr":
        return _transcriber_bytes(model, settings)
    if kind == "tts":
        return _voice_bytes(model, settings)
    store = engine_store(settings)
    try:
        builder, request = build_of(model, settings, store, ignore_progress, download=False)
    except ModelSourceError:
        if settings.engines.build_on_start and is_fetchable(model.source):
            return None  # it is fetched when it is loaded
        raise
    entry = store.find(builder.key(request))
    loads = [one for one in phase_estimates(load_options(model), builder, request, entry) if one.phase == "load"]
    return _bytes_of_all(loads[0], model.replicas) if loads else None


def _transcriber_bytes(model: ModelSettings, settings: Settings) -> int | None:
    folder = models_dir(settings.cache_dir)
    try:
        source = resolve_whisper(model.source, folder, download=False)
    except ModelSourceError:
        if settings.engines.build_on_start and is_fetchable(model.source):
            return None  # it is fetched when it is loaded
        raise
    weights_bytes = (source.path / WEIGHTS_FILE).stat().st_size
    return model.replicas * (weights_bytes + TRANSCRIBER_BYTES + WORKER_PROCESS_BYTES)


def _voice_bytes(model: ModelSettings, settings: Settings) -> int | None:
    may_fetch = settings.engines.build_on_start and model.source in CATALOGUE
    folder = models_dir(settings.cache_dir)
    if may_fetch and locate(model.source, folder) is None:
        return None
    weights_bytes = resolve_piper_voice(model.source, folder, download=False).weights.stat().st_size
    return model.replicas * (weights_bytes + VOICE_BYTES + WORKER_PROCESS_BYTES)


def _bytes_of_all(load: Estimate, replicas: int) -> int:
    shared_bytes = sum(part.size_bytes for part in load.memory if part.name in _SHARED_PARTS)
    return shared_bytes + replicas * (load.memory_bytes - shared_bytes + WORKER_PROCESS_BYTES)


def main() -> None:
    settings = Settings.model_validate_json(sys.stdin.buffer.read())
    try:
        print(json.dumps({"memory_bytes": load_bytes(settings.models[0], settings)}))
    except EdgeLLMError as error:
        print(json.dumps({"code": error.code, "message": str(error)}))


if __name__ == "__main__":
    main()
