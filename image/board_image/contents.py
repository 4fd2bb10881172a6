"""Contents: every file of a board's image, by its name on the board, and where its bytes come from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from board_image.board import Board
from edgellm.errors import ConfigError, ReleaseSourceError
from edgellm.host.archives import ImageArchive, require_engine_archive
from edgellm.host.configuration_check import check_configuration
from edgellm.host.installed_files import RECORD
from edgellm.host.packed_inputs import (
    files_below,
    name_of,
    require_file,
    require_model,
    require_wheels,
    wheels_in,
)
from edgellm.service.install import Mode, Target, system_files
from edgellm.service.install.installation import record_of

OVERLAY = Path(__file__).resolve().parents[1] / "overlay"
IMAGE_FOLDER = "usr/share/edgellm/image"  # the host tool's first boot looks there
CONTAINER_ARCHIVE = "edgellm.tar"  # whatever it was called: the first boot knows it by this name
CONFIG = "etc/edgellm/edgellm.toml"
CREDENTIALS = "/run/credentials/edgellm.service"
# What a board that others reach is told beyond the defaults.
SERVED = ("api_keys_file", "tls_certificate_file", "tls_key_file", "tls_authority_file")
UNITS = "usr/local/lib/systemd/system"
WANTS = "etc/systemd/system/multi-user.target.wants"
EXECUTABLE_MODE, FILE_MODE = 0o755, 0o644


@dataclass(frozen=True, slots=True)
class Entry:
    """``part`` is what it belongs to in the table of sizes. Exactly one of ``content``, ``file``, ``link`` is set."""

    name: str
    part: str
    content: bytes | None = None
    file: Path | None = None
    link: str | None = None
    mode: int = FILE_MODE

    @property
    def size_bytes(self) -> int:
        if self.file is not None:
            return self.file.stat().st_size
        return len(self.content or b"")

    def sha256(self) -> str:
        if self.file is None:
            return hashlib.sha256(self.content or b"").hexdigest()
        with self.file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Inputs:
    """Exactly one of ``container`` and ``wheels`` is set. ``without_pairing`` says that no client need pair with the
    board: others have their keys otherwise, or nobody reaches it from beyond."""

    container: Path | None = None
    wheels: Path | None = None
    engines: Sequence[Path] = field(default=())
    models: Sequence[Path] = field(default=())
    config: Path | None = None
    without_pairing: bool = False

    @property
    def mode(self) -> Mode:
        return Mode.CONTAINER if self.container is not None else Mode.VENV


@dataclass(frozen=True, slots=True)
class _Unseen(Target):
    """A system that is not here. The first boot fits the units to what the board has."""

    is_jetson_board: bool = False

    @property
    def is_jetson(self) -> bool:
        return self.is_jetson_board


def contents_of(board: Board, inputs: Inputs) -> Sequence[Entry]:
    """Sorted by name. Raises ReleaseSourceError that names the input which is not what it should be, or ConfigError."""
    _check(board, inputs)
    entries: dict[str, Entry] = {}
    for entry in (*_system(board, inputs), *_overlay(), *_payload(inputs)):
        entries[entry.name] = entry
    return [entries[name] for name in sorted(entries)]


def _system(board: Board, inputs: Inputs) -> Iterator[Entry]:
    """What ``edgellm install`` would put there, by the same code."""
    gpu = board.sm is not None
    files = system_files(inputs.mode, _Unseen(Path("/nonexistent"), is_jetson_board=board.bsp is not None), gpu=gpu)
    for name, file in files.items():
        content = _config(inputs, file.content) if name == CONFIG else file.content
        yield Entry(name, "system", content, mode=file.mode)
    units = [name for name in files if name.startswith(f"{UNITS}/") and name.endswith(".service")]
    wanted = [name for name in units if b"[Install]" in files[name].content]
    record = record_of(inputs.mode, files, [name.rpartition("/")[2] for name in wanted])
    yield Entry(RECORD, "system", record.as_bytes())
    yield from map(_wanted, wanted)


def _config(inputs: Inputs, example: bytes) -> bytes:
    if inputs.config is not None:
        return _read(inputs.config)
    text = example.decode()
    for key in SERVED:
        text, found = re.subn(rf"(?m)^#({key} = \"{CREDENTIALS}/)", r"\1", text)
        if found != 1:
            raise ConfigError(f"{CONFIG} of edgellm install has no line for {key} — run make reference")
    return text.encode()


def _overlay() -> Iterator[Entry]:
    for path in sorted(OVERLAY.rglob("*")):
        name = path.relative_to(OVERLAY).as_posix()
        if path.is_symlink():
            yield Entry(name, "system", link=str(path.readlink()), mode=0o777)
        elif path.is_file():
            yield Entry(name, "system", path.read_bytes())
            if name.startswith(f"{UNITS}/") and b"[Install]" in path.read_bytes():
                yield _wanted(name)


def _wanted(unit: str) -> Entry:
    name = unit.rpartition("/")[2]
    return Entry(f"{WANTS}/{name}", "system", link=f"/{UNITS}/{name}", mode=0o777)


def _payload(inputs: Inputs) -> Iterator[Entry]:
    if inputs.container is not None:
        yield Entry(f"{IMAGE_FOLDER}/container/{CONTAINER_ARCHIVE}", "container", file=inputs.container)
    for wheel in wheels_in(inputs.wheels):
        yield Entry(f"{IMAGE_FOLDER}/wheels/{wheel.name}", "wheels", file=wheel)
    for engine in inputs.engines:
        yield Entry(f"{IMAGE_FOLDER}/engines/{engine.name}", "engines", file=engine)
    for model in inputs.models:
        for name, path in files_below(model, f"{IMAGE_FOLDER}/models/{name_of(model)}"):
            yield Entry(name, "models", file=path)


def _check(board: Board, inputs: Inputs) -> None:
    if (inputs.container is None) == (inputs.wheels is None):
        raise ConfigError("give either --container FILE or --wheels FOLDER")
    if inputs.container is not None:
        _check_container(require_file("--container", inputs.container), board)
    if inputs.wheels is not None:
        require_wheels(inputs.wheels, board.architecture, f"{board.name} is {board.architecture}")
    for engine in inputs.engines:
        require_engine_archive(require_file("--engine", engine))
    for model in inputs.models:
        require_model(model)
    if inputs.config is not None:
        _check_config(inputs.config, pairable=not inputs.without_pairing)
    names = [name_of(path) for path in (*inputs.engines, *inputs.models)]
    for name in names:
        if names.count(name) > 1:
            raise ReleaseSourceError(f"two engines or models are called {name} — rename one")


def _check_config(config: Path, *, pairable: bool) -> None:
    check_configuration(config)
    if pairable:
        try:
            check_configuration(config, pairable=True)
        except ConfigError as error:
            raise ConfigError(f"{error}, or give --without-pairing") from None


def _check_container(archive: Path, board: Board) -> None:
    found = ImageArchive.read(archive).architecture
    if found != board.architecture:
        raise ReleaseSourceError(
            f"{archive} is for {found}, and {board.name} is {board.architecture} — build the container image on a "
            "machine of that kind"
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def sizes_by_part(entries: Sequence[Entry]) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for entry in entries:
        sizes[entry.part] = sizes.get(entry.part, 0) + entry.size_bytes
    return sizes
