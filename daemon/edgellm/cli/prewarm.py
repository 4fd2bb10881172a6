"""``edgellm prewarm``: whatever the configuration needs is there afterwards. The only builder of an appliance.

What was done is found done the next time: downloads go on where they ended, an engine is there whole or not at all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.cli.arguments import ENGINE_OPTIONS, SERVER_OPTIONS, add_config_option, add_setting_options
from edgellm.cli.complaint import complain
from edgellm.cli.progress_line import ProgressLine
from edgellm.errors import BundleMismatchError, ConfigError, EdgeLLMError
from edgellm.host.option_types import named_path

if TYPE_CHECKING:
    from edgellm.cli.engine_context import EngineContext
    from edgellm.engines.progress import Progress
    from edgellm.service.notify import Supervisor

IMPORT_FOLDER = "import"
_OPTIONS = (*(option for option in SERVER_OPTIONS if option.spelling == "--cache-dir"), *ENGINE_OPTIONS)


def configure(parser: argparse.ArgumentParser) -> None:
    from edgellm.config import Settings

    parser.add_argument(
        "--import-from",
        metavar="FOLDER",
        type=named_path,
        help=f"take the engine archives in FOLDER first (default: {IMPORT_FOLDER} in the cache folder)",
    )
    add_config_option(parser)
    add_setting_options(parser.add_argument_group("where"), _OPTIONS, Settings)


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.notify import Supervisor
    from edgellm.service.remedies import with_remedy

    with closing(Supervisor()) as supervisor:
        try:
            _prewarm(namespace, supervisor)
        except EdgeLLMError as error:
            supervisor.failed(with_remedy(error))
            raise
    return 0


def _prewarm(namespace: argparse.Namespace, supervisor: Supervisor) -> None:
    """Raises the first error of an archive, when everything else is there."""
    from edgellm.cli.engine_context import open_context
    from edgellm.service.remedies import with_remedy

    context = open_context(namespace)
    folder: Path = namespace.import_from or context.settings.cache_dir / IMPORT_FOLDER
    archives = _archives_in(folder, is_optional=namespace.import_from is None)
    with ProgressLine() as line:
        steps = _Steps(context, line, supervisor)
        failures = [*steps.import_archives(archives)]
        steps.prepare_engines()
        steps.fetch_files()
    for failure in failures[1:]:
        complain(str(with_remedy(failure)))
    for failure in failures:
        raise failure


def _archives_in(folder: Path, *, is_optional: bool) -> list[Path]:
    """Raises ConfigError for a folder that cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file())
    except OSError as error:
        if is_optional and isinstance(error, FileNotFoundError):
            return []
        raise ConfigError(
            f"{folder}: {error.strerror} — give a folder with engine archives in it, or remove it"
        ) from None


class _Steps:
    def __init__(self, context: EngineContext, line: ProgressLine, supervisor: Supervisor) -> None:
        self._context = context
        self._line = line
        self._supervisor = supervisor

    def import_archives(self, archives: Sequence[Path]) -> Iterator[EdgeLLMError]:
        """Yields what was wrong with single archives; one for another board is passed over."""
        from edgellm.engines.archive.signing import read_trusted_keys
        from edgellm.engines.archive.unpacking import import_archive
        from edgellm.engines.cache_directory import models_dir
        from edgellm.runtime.engine_builders import available_builders
        from edgellm.service.remedies import with_remedy

        settings = self._context.settings
        keys_file = settings.engines.trusted_keys_file
        trusted = read_trusted_keys(keys_file) if keys_file and archives else None
        builders = available_builders() if archives else {}
        for archive in archives:
            try:
                imported = import_archive(
                    archive,
                    self._context.store,
                    models_dir(settings.cache_dir),
                    builders,
                    trusted=trusted,
                    on_progress=self._show,
                )
            except BundleMismatchError as error:
                _say(f"passed over: {error}")
            except EdgeLLMError as error:
                yield with_remedy(error, "copy it anew, or remove it")
            else:
                print(f"{imported.directory}  {'was there' if imported.was_there else f'from {archive}'}")

    def prepare_engines(self) -> None:
        for _, builder, request in self._context.requests(self._show, download=True):
            with self._context.store.prepare(builder, request, on_progress=self._show) as lease:
                print(f"{lease.directory}  {request.source.model_id}")

    def fetch_files(self) -> None:
        """Of models that have no engine: what is fetched is what is loaded."""
        for path, model_id in self._context.files_without_engine(self._show):
            print(f"{path}  {model_id}")

    def _show(self, progress: Progress) -> None:
        self._line.show(progress)
        amount = "" if progress.fraction is None else f" {progress.fraction:.0%}"
        self._supervisor.starting(f"{progress.message}{amount}")


def _say(text: str) -> None:
    sys.stderr.write(f"edgellm: {' '.join(text.split())}\n")
