"""Engines and models of a bundle, brought to where prewarming looks for them."""

from __future__ import annotations

import shutil
from pathlib import Path

from edgellm.errors import UpgradeError
from edgellm.host.paths import HostPaths
from edgellm.host.source import ENGINES, MODELS

ENGINES_TARGET, MODELS_TARGET = "import", "models"


def bring_extras(folder: Path, paths: HostPaths) -> None:
    """What is there already stays. Raises UpgradeError."""
    for name, target in ((ENGINES, ENGINES_TARGET), (MODELS, MODELS_TARGET)):
        for path in sorted((folder / name).rglob("*")):
            copy = paths.service_data / target / path.relative_to(folder / name)
            if path.is_file() and not (copy.is_file() and copy.stat().st_size == path.stat().st_size):
                _copy_for_service(path, copy, paths.service_data)


def _copy_for_service(source: Path, target: Path, owned_as: Path) -> None:
    """The service's own file, there whole or not at all."""
    status = owned_as.stat()
    try:
        for folder in reversed([one for one in target.parents if not one.exists()]):
            folder.mkdir(mode=0o750)
            shutil.chown(folder, status.st_uid, status.st_gid)
        unfinished = target.with_name(f".{target.name}.unfinished")
        shutil.copyfile(source, unfinished)
        shutil.chown(unfinished, status.st_uid, status.st_gid)
        unfinished.chmod(0o640)
        unfinished.replace(target)
    except OSError as error:
        raise UpgradeError(f"{error.filename or target}: {error.strerror}") from None
