"""What the actions of ``edgellm engine`` share: the store, the models that are meant, and how entries are named."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgellm.cli.arguments import load_from_arguments
from edgellm.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from edgellm.config import ModelSettings, Settings
    from edgellm.engines.builder import Builder, BuildRequest
    from edgellm.engines.progress import ProgressCallback
    from edgellm.engines.store import Store
    from edgellm.engines.store_entries import Entry

MODEL_HELP = (
    "a catalogue name, a Hugging Face id, a GGUF file or a safetensors directory (default: the configured models)"
)
_MIN_KEY_DIGITS = 4
ENTRY_HELP = (
    f"an engine's name as edgellm engine list has it, or at least {_MIN_KEY_DIGITS} of the first digits of its key"
)


@dataclass(frozen=True, slots=True)
class EngineContext:
    settings: Settings
    store: Store

    def models(self) -> Iterator[ModelSettings]:
        """Those that are meant and have an engine; the others: see files_without_engine."""
        from edgellm.config.model_kind import WITHOUT_TEXT
        from edgellm.service.model_kinds import has_sound_engine, kind_of

        for model in self.settings.served_models:
            if kind_of(model, self.settings) not in WITHOUT_TEXT or has_sound_engine(model, self.settings):
                yield model

    def requests(
        self, on_progress: ProgressCallback, *, download: bool
    ) -> Iterator[tuple[ModelSettings, Builder, BuildRequest]]:
        """Each model that is meant, with its builder and what is asked of it."""
        from edgellm.service.model_builds import build_of

        for model in self.models():
            yield (model, *build_of(model, self.settings, self.store, on_progress, download=download))

    def files_without_engine(self, on_progress: ProgressCallback) -> Iterator[tuple[Path, str]]:
        """The files, fetched where they are missing, and the name of each model that is loaded from them."""
        from edgellm.engines.cache_directory import models_dir
        from edgellm.engines.piper_voice import resolve_piper_voice
        from edgellm.engines.whisper_folder import resolve_whisper
        from edgellm.service.model_kinds import has_sound_engine, kind_of

        folder = models_dir(self.settings.cache_dir)
        for model in self.settings.served_models:
            if has_sound_engine(model, self.settings):
                continue
            kind = kind_of(model, self.settings)
            if kind == "asr":
                whisper = resolve_whisper(model.source, folder, on_progress=on_progress)
                yield whisper.path, whisper.model_id
            elif kind == "tts":
                voice = resolve_piper_voice(model.source, folder, on_progress=on_progress)
                yield voice.weights, voice.model_id

    def entry_in(self, directory: Path) -> Entry:
        """The entry of a bundle that is held."""
        (entry,) = [entry for entry in self.store.entries() if entry.directory == directory]
        return entry

    def entries(self, names: Sequence[str]) -> list[Entry]:
        """The entries that ``names`` mean, all of them when there are none. Raises UsageError for a name of none."""
        found = self.store.entries()
        if not names:
            return found
        chosen = []
        for name in names:
            matches = [entry for entry in found if name in (entry.name, f"{entry.root}/{entry.name}")]
            if not matches and len(name) >= _MIN_KEY_DIGITS:
                matches = [entry for entry in found if _digits(entry).startswith(name)]
            if not matches and len(name) < _MIN_KEY_DIGITS:
                raise UsageError(
                    f"there is no engine {name!r} — give its name, or at least {_MIN_KEY_DIGITS} digits of its key, as "
                    "edgellm engine list has them"
                )
            if not matches:
                raise UsageError(f"there is no engine {name!r} — see edgellm engine list")
            if len({entry.short_key for entry in matches}) > 1:
                raise UsageError(f"{name!r} may be {' or '.join(sorted(entry.name for entry in matches))}")
            chosen += matches
        return chosen


def _digits(entry: Entry) -> str:
    """Of its key: all of them, or as many as its folder's name has where its manifest cannot be read."""
    return entry.key.digest if entry.key is not None else entry.short_key


def open_context(namespace: argparse.Namespace) -> EngineContext:
    from edgellm.service.engine_store import engine_store

    settings = load_from_arguments(namespace, getattr(namespace, "models", None) or (), "MODEL").settings
    return EngineContext(settings, engine_store(settings))


def entry_facts(entry: Entry) -> dict[str, Any]:
    """An entry as JSON: the same facts in ``list``, ``prune`` and ``clear``."""
    from edgellm.engines.store_eviction import is_loaded

    manifest = entry.manifest
    return {
        "name": entry.name,
        "folder": str(entry.directory),
        "model": manifest.model_id if manifest else None,
        "source": manifest.source_ref if manifest else None,
        "runtime": manifest.builder if manifest else None,
        "key": manifest.key.digest if manifest else None,
        "size_bytes": entry.size_bytes,
        "created": manifest.created if manifest else None,
        "read_only": entry.read_only,
        "pinned": entry.pinned,
        "loaded": is_loaded(entry),
        "problem": entry.problem,
    }


def print_json(value: object) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False))


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1_000_000:.1f} MB"
