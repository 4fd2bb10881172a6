"""A daemon with the catalogue's models of sound beside others, and what their tests need of a machine."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.http.daemon_process import Daemon

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.catalogue import CATALOGUE, install

WAIT_SECONDS = 600.0  # a sentence, or a transcript, takes a second on a quiet machine
HEARS = ("av", "faster_whisper")
SPEAKS = ("piper", *HEARS)
PATIENT = f"[workers]\nstep_deadline_seconds = {WAIT_SECONDS}\ncancel_grace_seconds = {WAIT_SECONDS}\n"


def require_extras(modules: Sequence[str]) -> None:
    """Skip the module that calls this where an extra is not installed; in CI nothing is skipped."""
    if any(importlib.util.find_spec(name) is None for name in modules) and os.environ.get("EDGELLM_CI") != "1":
        pytest.skip("the audio or speech extra is not installed: make test sets them up", allow_module_level=True)


def whisper_folder() -> Path:
    """The catalogue's model of speech recognition, fetched where it is missing."""
    return install(CATALOGUE["whisper-tiny.en"], models_dir(default_cache_dir(os.environ))).parent


def voice_file() -> Path:
    return install(CATALOGUE["voice"], models_dir(default_cache_dir(os.environ)))


@contextmanager
def speaking_daemon(
    folder: Path, sources: Mapping[str, object], *, settings: str = PATIENT, models: Mapping[str, str] | None = None
) -> Iterator[Daemon]:
    """``sources`` by the models' names; ``models`` are further settings of some of them, ``settings`` of all."""
    tables = "".join(
        f'[[models]]\nname = "{name}"\nsource = "{source}"\n{(models or {}).get(name, "")}'
        for name, source in sources.items()
    )
    config = folder / "edgellm.toml"
    config.write_text(f'cache_dir = "{folder}/cache"\n{settings}{tables}')
    daemon = Daemon(None, "--config", str(config))
    try:
        daemon.wait_for(lambda: daemon.get("/health/ready").status_code == 200, WAIT_SECONDS)
        yield daemon
    finally:
        daemon.stop()
