"""Checkpoint digest: which checkpoint this is, by content and never by path or time, in a fraction of a second.

Metadata files count whole; files of weights count by header, size and samples of every tensor. So a checkpoint that
was moved, copied or touched keeps its digest, and these change it for certain:

- any byte of a metadata file; a file of either kind added, removed or renamed;
- any tensor added, removed, renamed, moved or of another shape or type; any file of another size;
- any byte of a tensor of up to ``WHOLE_TENSOR_BYTES`` (norms, biases, scales);
- in larger tensors any change of a stretch of bytes as long as a fifteenth of the tensor (up to 4,096 tensors; a third
  where there are over 16,384), and any change of the first or last ``SAMPLE_BYTES``.

A training step moves values all over a tensor. Where it changes a share p of them at scattered places, a 16-bit tensor
keeps its samples with probability (1 - p) ** 2048: at p = 1 %, one in 8e8, and that for each changed tensor alone.
What can go unnoticed is an edit that stays between the samples, such as one row of a large matrix: after such an edit
by hand, build with ``edgellm engine build --force``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from edgellm.config.regular_file import open_regular, regular_descriptor
from edgellm.engines.file_digest import whole_file_sha256
from edgellm.engines.gguf_file import gguf_layout
from edgellm.engines.safetensors_header import SafetensorsHeader
from edgellm.errors import CheckpointError, ModelSourceError

DIGEST_VERSION = 2
SAMPLE_BYTES = 256
SAMPLES_PER_TENSOR = 16
MIN_SAMPLES_PER_TENSOR = 4
WHOLE_TENSOR_BYTES = 4096
# Mixtures of experts have tens of thousands of tensors: fewer samples of each keep the whole in bounds.
MAX_SAMPLES = 1 << 16
READ_BYTES = 1 << 20
MAX_FILES = 4096
MAX_FOLDER_DEPTH = 3

METADATA_SUFFIXES = (".json", ".jinja", ".model", ".txt")
SAFETENSORS_SUFFIX = ".safetensors"
PYTORCH_SUFFIXES = (".bin", ".pt", ".pth")

Signature = tuple[tuple[str, int, int, int], ...]


def checkpoint_digest(path: Path) -> str:
    """Hexadecimal SHA-256 of the checkpoint folder or GGUF file ``path``.

    Raises ModelSourceError when it cannot be read, CheckpointError when the table of a weights file is damaged.
    """
    try:
        if not path.is_dir():
            return _gguf_digest(path)
        digest = hashlib.sha256(f"checkpoint {DIGEST_VERSION}\n".encode())
        files = sorted(checkpoint_files(path))
        headers = {name: _header(path / name) for name in files if name.endswith(SAFETENSORS_SUFFIX)}
        samples = _samples_of_each(sum(len(header.tensors) for header in headers.values()))
        for name in files:
            if name in headers:
                header = headers[name]
                spans = ((tensor.offset_bytes, tensor.size_bytes) for tensor in header.tensors.values())
                value = _weights_digest(path / name, header.header_bytes, spans, samples)
            elif name.endswith(PYTORCH_SUFFIXES):
                size_bytes = (path / name).stat().st_size
                value = _weights_digest(path / name, 0, [(0, size_bytes)], MAX_SAMPLES // MAX_FILES)
            else:
                value = whole_file_sha256(path / name)
            digest.update(f"{name}\0{value}\n".encode())
        return digest.hexdigest()
    except OSError as error:
        raise ModelSourceError(f"{error.filename or path}: {error.strerror}") from None


def checkpoint_signature(path: Path) -> Signature:
    """Name, size, time of last change and inode of every file that counts: equal when nobody touched them between.

    Unlike the digest it notices a change of any byte, and cannot tell it from a mere ``touch``.
    """
    try:
        names = sorted(checkpoint_files(path)) if path.is_dir() else [""]
        status = [(name, (path / name).stat()) for name in names]
    except OSError as error:
        raise ModelSourceError(f"{error.filename or path}: {error.strerror}") from None
    return tuple((name, entry.st_size, entry.st_mtime_ns, entry.st_ino) for name, entry in status)


def checkpoint_files(directory: Path) -> Iterator[str]:
    """Names of the files that count, relative; links to files count as files, hidden names and deep folders do not."""
    count = 0
    for folder, folders, names in os.walk(directory):
        relative = Path(folder).relative_to(directory)
        hidden = [name for name in folders if name.startswith(".")]
        folders[:] = [] if len(relative.parts) >= MAX_FOLDER_DEPTH - 1 else sorted(set(folders) - set(hidden))
        for name in names:
            if name.startswith(".") or not name.endswith((*METADATA_SUFFIXES, SAFETENSORS_SUFFIX, *PYTORCH_SUFFIXES)):
                continue
            path = Path(folder) / name
            if not path.is_file():
                raise CheckpointError(f"{path}: not a regular file, which every file of a checkpoint must be")
            count += 1
            if count > MAX_FILES:
                raise CheckpointError(f"{directory}: more than {MAX_FILES} files: is it a checkpoint folder?")
            yield str(relative / name)


def _header(path: Path) -> SafetensorsHeader:
    with open_regular(path) as stream:
        return SafetensorsHeader(path, stream)


def _gguf_digest(path: Path) -> str:
    layout = gguf_layout(path)
    return _weights_digest(path, layout.header_bytes, layout.spans, _samples_of_each(len(layout.spans)))


def _samples_of_each(tensor_count: int) -> int:
    return max(MIN_SAMPLES_PER_TENSOR, min(SAMPLES_PER_TENSOR, MAX_SAMPLES // max(1, tensor_count)))


def _weights_digest(path: Path, header_bytes: int, spans: Iterable[tuple[int, int]], samples: int) -> str:
    """SHA-256 over version, file size, the header whole, and ``samples`` samples of each (offset, size)."""
    digest = hashlib.sha256(f"weights {DIGEST_VERSION}\n".encode())
    descriptor = regular_descriptor(path)
    try:
        digest.update(os.fstat(descriptor).st_size.to_bytes(8, "little"))
        for position in range(0, header_bytes, READ_BYTES):
            digest.update(os.pread(descriptor, min(READ_BYTES, header_bytes - position), position))
        # Samples are far apart: reading ahead of each would read the file.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for offset, size in spans:
            if size <= WHOLE_TENSOR_BYTES:
                digest.update(os.pread(descriptor, size, offset))
                continue
            last = size - SAMPLE_BYTES
            for index in range(samples):
                digest.update(os.pread(descriptor, SAMPLE_BYTES, offset + last * index // (samples - 1)))
    finally:
        os.close(descriptor)
    return digest.hexdigest()
