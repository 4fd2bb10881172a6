"""What the actions of ``edgellm engine`` share: the store, the models that are meant, and how entries are named."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from edgellm.cli.arguments import UsageError, load_from_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from edgellm.config import ModelSettings, Settings
    from edgellm.engines.builder import Builder, BuildRequest
    from edgellm.engines.progress import ProgressCallback
    from edgellm.engines.store import Store
    from edgellm.engines.store_entries import Entry
    from edgellm.runtime.llm_options import LLMOptions

MODEL_HELP = (
    "a catalogue name, a Hugging Face id, a GGUF file or a safetensors directory (default: the configured models)"
)
ENTRY_HELP = "an engine's name as edgellm engine list has it, or the first digits of its key"
_MIN_KEY_DIGITS = 4


@dataclass(frozen=True, slots=True)
class EngineContext:
    settings: Settings
    store: Store

    def requests(
        self, on_progress: ProgressCallback, *, download: bool
    ) -> Iterator[tuple[ModelSettings, Builder, BuildRequest]]:
        """Each model that is meant, with its builder and what is asked of it."""
        from edgellm.engines.cache_directory import models_dir
        from edgellm.engines.source import resolve
        from edgellm.runtime.engine_builders import build_request, builder_for
        from edgellm.runtime.modules import runtime_for, select_runtime

        for model in self.settings.served_models:
            options = build_options(model)
            choice = model.runtime
            selected = None if choice == "native" else select_runtime(choice)
            if selected is None or selected.kind == "native" or choice == "tensorrt":
                options.refuse_unsupported("native" if selected is None else selected.kind)
            find = partial(
                resolve,
                models_dir=models_dir(self.settings.cache_dir),
                roots=self.store.read_only,
                download=download,
                on_progress=on_progress,
            )
            source = find(model.source)
            kind = "native" if selected is None else runtime_for(choice, selected, source).kind
            options.refuse_unsupported(kind)
            builder = builder_for(kind, cache_dir=self.settings.cache_dir)
            yield model, builder, build_request(options, source, find, kind)

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
                matches = [entry for entry in found if entry.short_key.startswith(name)]
            if not matches:
                raise UsageError(f"there is no engine {name!r} — see edgellm engine list")
            if len({entry.short_key for entry in matches}) > 1:
                raise UsageError(f"{name!r} may be {' or '.join(sorted(entry.name for entry in matches))}")
            chosen += matches
        return chosen


def open_context(namespace: argparse.Namespace) -> EngineContext:
    from edgellm.service.engine_store import engine_store

    settings = load_from_arguments(namespace, getattr(namespace, "models", None) or (), "MODEL").settings
    return EngineContext(settings, engine_store(settings))


def build_options(model: ModelSettings) -> LLMOptions:
    """The options of a launch that a build depends on."""
    from edgellm.runtime.llm_options import LLMOptions, SpeculativeConfig
    from edgellm.service.models import COMPILED_OPTIONS

    speculative = model.speculative_config.model_dump(exclude_none=True) if model.speculative_config else {}
    return LLMOptions(
        model=model.source,
        runtime=model.runtime,
        quantisation=model.quantisation or "auto",
        max_input_len=model.max_input_len,
        max_batch_size=model.max_batch_size,
        max_kv_cache_capacity=model.max_kv_cache_capacity,
        speculative=SpeculativeConfig(**speculative),
        **{name: getattr(model, name) for name in COMPILED_OPTIONS},
    )


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
