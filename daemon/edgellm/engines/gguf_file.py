"""GgufFile: the metadata and tensor table of a GGUF file (version 2 or 3), every length and offset checked.

Nothing in the file is trusted: whatever is inconsistent is a CheckpointError that names the file and the key
or tensor. Tensor data is never read here; the header alone decides what a file claims to hold.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NoReturn, TypeVar

from edgellm.config.regular_file import open_regular
from edgellm.errors import CheckpointError

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT_BYTES = 32
MAX_METADATA_ENTRIES = 65_536
MAX_TENSORS = 65_536
MAX_KEY_BYTES = 65_535
MAX_ARRAY_ELEMENTS = 4_194_304
MAX_DIMENSIONS = 4
MAX_TENSOR_ELEMENTS = 1 << 50
MAX_ALIGNMENT_BYTES = 1 << 20

T = TypeVar("T")
GgufScalar = bool | int | float | str
GgufValue = GgufScalar | list[bool] | list[int] | list[float] | list[str]

# Value kinds of the format: struct code by number; strings and arrays are variable.
_SCALAR_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS = {code: struct.Struct(f"<{code}") for code in _SCALAR_CODES.values()}


class TensorType(IntEnum):
    """Numeric values are those of the format; ``block_elements`` values take ``block_bytes`` bytes."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    BF16 = 30

    @property
    def block_elements(self) -> int:
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        return _BLOCKS[self][1]


_BLOCKS: Mapping[TensorType, tuple[int, int]] = {
    TensorType.F32: (1, 4),
    TensorType.F16: (1, 2),
    TensorType.BF16: (1, 2),
    TensorType.Q4_0: (32, 18),
    TensorType.Q4_1: (32, 20),
    TensorType.Q5_0: (32, 22),
    TensorType.Q5_1: (32, 24),
    TensorType.Q8_0: (32, 34),
    TensorType.Q2_K: (256, 84),
    TensorType.Q3_K: (256, 110),
    TensorType.Q4_K: (256, 144),
    TensorType.Q5_K: (256, 176),
    TensorType.Q6_K: (256, 210),
    TensorType.Q8_K: (256, 292),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """``shape`` has the contiguous dimension first, as in the file; ``offset_bytes`` counts from the file's start."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """``header_bytes`` is the length of everything before the tensor data; ``size_bytes`` that of the file."""

    path: Path
    metadata: Mapping[str, GgufValue]
    tensors: Mapping[str, TensorInfo]
    header_bytes: int
    size_bytes: int

    def string(self, key: str) -> str | None:
        return self._typed(key, str, "a string")

    def require_string(self, key: str) -> str:
        return self._required(key, self.string(key))

    def boolean(self, key: str) -> bool | None:
        return self._typed(key, bool, "a boolean")

    def integer(self, key: str, lowest: int = 0, highest: int = (1 << 31) - 1) -> int | None:
        value = self.metadata.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise CheckpointError(f"{self.path}: {key} is not an integer")
        if not lowest <= value <= highest:
            raise CheckpointError(f"{self.path}: {key} is {value}, outside {lowest} to {highest}")
        return value

    def require_integer(self, key: str, lowest: int = 0, highest: int = (1 << 31) - 1) -> int:
        return self._required(key, self.integer(key, lowest, highest))

    def strings(self, key: str) -> list[str] | None:
        return self._array(key, str, "strings")

    def integers(self, key: str) -> list[int] | None:
        return self._array(key, int, "integers")

    def floats(self, key: str) -> list[float] | None:
        return self._array(key, float, "floating-point numbers")

    def _typed(self, key: str, kind: type[T], kind_name: str) -> T | None:
        value = self.metadata.get(key)
        if value is None or isinstance(value, kind):
            return value
        raise CheckpointError(f"{self.path}: {key} is not {kind_name}")

    def _required(self, key: str, value: T | None) -> T:
        if value is None:
            raise CheckpointError(f"{self.path}: {key} is missing")
        return value

    def _array(self, key: str, kind: type[T], kind_name: str) -> list[T] | None:
        value = self.metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or (value and type(value[0]) is not kind):
            raise CheckpointError(f"{self.path}: {key} is not an array of {kind_name}")
        return value  # type: ignore[return-value]  # arrays of the format have one element kind


@dataclass(frozen=True, slots=True)
class GgufLayout:
    """``spans`` are offset and size of every tensor in bytes, in the order of the table."""

    header_bytes: int
    spans: tuple[tuple[int, int], ...]


def read_gguf(path: Path) -> GgufFile:
    """Read and check the header of ``path``. Raises CheckpointError; OSError only when it cannot be opened."""
    return _read(path, texts=True)


def read_gguf_without_arrays(path: Path) -> GgufFile:
    """As ``read_gguf`` in a fraction of the time: arrays, those of the vocabulary, are passed over unread."""
    return _read(path, texts=False)


def gguf_layout(path: Path) -> GgufLayout:
    """Where the tensors are."""
    file = read_gguf_without_arrays(path)
    return GgufLayout(
        file.header_bytes, tuple((entry.offset_bytes, entry.size_bytes) for entry in file.tensors.values())
    )


def _read(path: Path, *, texts: bool) -> GgufFile:
    with open_regular(path) as stream:
        size_bytes = path.stat().st_size
        if size_bytes < 24:
            raise CheckpointError(f"{path}: {size_bytes} bytes are too few for a GGUF file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
            return _HeaderReader(path, mapping, len(mapping), texts=texts).read()


class _HeaderReader:
    """A cursor over the mapped file; every advance is checked against the file's end."""

    def __init__(self, path: Path, data: mmap.mmap, size_bytes: int, *, texts: bool) -> None:
        self._texts = texts
        self._path = path
        self._data = data
        self._size_bytes = size_bytes
        self._position = 0
        self._where = "the header"

    def read(self) -> GgufFile:
        if self._take(4) != MAGIC:
            raise CheckpointError(f"{self._path}: not a GGUF file (it does not start with the letters GGUF)")
        version = self._number("I")
        if version not in SUPPORTED_VERSIONS:
            if version.to_bytes(4, "little")[3] in SUPPORTED_VERSIONS:
                self._fail("big-endian files are not supported")
            self._fail(f"version {version} is not supported (2 and 3 are)")
        tensor_count = self._count("tensors", MAX_TENSORS)
        entry_count = self._count("metadata entries", MAX_METADATA_ENTRIES)
        metadata: dict[str, GgufValue] = {}
        for index in range(entry_count):
            self._where = f"metadata entry {index}"
            key = self._key()
            self._where = key
            if key in metadata:
                self._fail("the key occurs twice")
            metadata[key] = self._value(self._number("I"))
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT_BYTES)
        if (
            isinstance(alignment, bool)
            or not isinstance(alignment, int)
            or not 8 <= alignment <= MAX_ALIGNMENT_BYTES
            or alignment & (alignment - 1)
        ):
            raise CheckpointError(f"{self._path}: general.alignment is not a power of two of at least 8")
        raw_tensors = [self._tensor_entry(index) for index in range(tensor_count)]
        self._where = "the tensor data"
        header_bytes = -(-self._position // alignment) * alignment if raw_tensors else self._position
        tensors = self._place(raw_tensors, header_bytes, alignment)
        return GgufFile(self._path, metadata, tensors, min(header_bytes, self._size_bytes), self._size_bytes)

    def _tensor_entry(self, index: int) -> tuple[str, TensorType, tuple[int, ...], int]:
        self._where = f"tensor entry {index}"
        name = self._key()
        self._where = f"tensor {name}"
        rank = self._number("I")
        if not 1 <= rank <= MAX_DIMENSIONS:
            self._fail(f"{rank} dimensions (1 to {MAX_DIMENSIONS} are possible)")
        shape = tuple(self._number("Q") for _ in range(rank))
        type_number = self._number("I")
        if type_number not in TensorType._value2member_map_:
            self._fail(f"tensor type {type_number} is not supported")
        if any(extent == 0 for extent in shape) or math.prod(shape) > MAX_TENSOR_ELEMENTS:
            self._fail(f"impossible shape {list(shape)}")
        return name, TensorType(type_number), shape, self._number("Q")

    def _place(
        self, entries: list[tuple[str, TensorType, tuple[int, ...], int]], data_start: int, alignment: int
    ) -> dict[str, TensorInfo]:
        tensors: dict[str, TensorInfo] = {}
        for name, kind, shape, offset in entries:
            self._where = f"tensor {name}"
            if name in tensors:
                self._fail("the name occurs twice")
            if shape[0] % kind.block_elements:
                self._fail(f"a row of {shape[0]} values is not a whole number of {kind.name} blocks")
            size_bytes = math.prod(shape) // kind.block_elements * kind.block_bytes
            if offset % alignment:
                self._fail(f"offset {offset} is not a multiple of the alignment {alignment}")
            if data_start + offset + size_bytes > self._size_bytes:
                self._fail(
                    f"its data ends at byte {data_start + offset + size_bytes}, the file at {self._size_bytes}: "
                    "the file is truncated or damaged"
                )
            tensors[name] = TensorInfo(name, kind, shape, data_start + offset, size_bytes)
        end_bytes = data_start
        for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset_bytes):
            if tensor.offset_bytes < end_bytes:
                self._where = f"tensor {tensor.name}"
                self._fail("its data overlaps another tensor's")
            end_bytes = tensor.offset_bytes + tensor.size_bytes
        return tensors

    def _fail(self, reason: str) -> NoReturn:
        raise CheckpointError(f"{self._path}: {self._where}: {reason}")

    def _advance(self, length_bytes: int) -> int:
        start = self._position
        if length_bytes > self._size_bytes - start:
            self._fail("the file ends here: it is truncated or damaged")
        self._position = start + length_bytes
        return start

    def _take(self, length_bytes: int) -> bytes:
        start = self._advance(length_bytes)
        return self._data[start : start + length_bytes]

    def _number(self, code: str) -> int:
        number = _NUMBERS[code]
        value: int = number.unpack_from(self._data, self._advance(number.size))[0]
        return value

    def _count(self, what: str, most: int) -> int:
        count = self._number("Q")
        if count > most:
            self._fail(f"{count} {what} are more than the {most} that are read")
        return count

    def _key(self) -> str:
        length_bytes = self._number("Q")
        if not 0 < length_bytes <= MAX_KEY_BYTES:
            self._fail(f"a name of {length_bytes} bytes (1 to {MAX_KEY_BYTES} are possible)")
        name = self._text(length_bytes)
        # Names go into messages, which are one line each.
        if not name.isprintable():
            self._fail("a name that holds control characters")
        return name

    def _text(self, length_bytes: int) -> str:
        try:
            return self._take(length_bytes).decode("utf-8")
        except UnicodeDecodeError:
            raise CheckpointError(f"{self._path}: {self._where}: text that is not UTF-8") from None

    def _value(self, kind: int) -> GgufValue:
        if kind == _STRING:
            return self._text(self._number("Q"))
        if kind == _ARRAY:
            return self._array(self._number("I"))
        return self._scalars(kind, 1)[0]

    def _array(self, kind: int) -> GgufValue:
        count = self._count("array elements", MAX_ARRAY_ELEMENTS)
        if kind == _STRING:
            return self._string_array(count) if self._texts else self._pass_over_strings(count)
        if kind == _ARRAY:
            self._fail("arrays of arrays are not supported")
        return self._scalars(kind, count)

    def _scalars(self, kind: int, count: int) -> list[bool | int | float]:
        code = _SCALAR_CODES.get(kind)
        if code is None:
            self._fail(f"value kind {kind} is unknown")
        start = self._advance(count * _NUMBERS[code].size)
        if count > 1 and not self._texts:
            return []
        return list(struct.unpack_from(f"<{count}{code}", self._data, start))

    def _pass_over_strings(self, count: int) -> list[str]:
        data, position = self._data, self._position
        unpack = _NUMBERS["Q"].unpack_from
        try:
            for _ in range(count):
                (length_bytes,) = unpack(data, position)
                position += 8 + length_bytes
        except struct.error:
            position = self._size_bytes + 1
        self._advance(position - self._position)
        return []

    def _string_array(self, count: int) -> list[str]:
        # The vocabulary: the one loop here that runs hundreds of thousands of times, so it is written flat.
        data, position, end = self._data, self._position, self._size_bytes
        unpack = struct.Struct("<Q").unpack_from
        texts: list[str] = []
        append = texts.append
        try:
            for _ in range(count):
                if end - position < 8:
                    break
                (length_bytes,) = unpack(data, position)
                position += 8
                if length_bytes > end - position:
                    break
                append(data[position : position + length_bytes].decode("utf-8"))
                position += length_bytes
        except UnicodeDecodeError:
            raise CheckpointError(
                f"{self._path}: {self._where}: element {len(texts)} holds text that is not UTF-8"
            ) from None
        if len(texts) < count:
            self._fail(f"the file ends in element {len(texts)} of {count}: it is truncated or damaged")
        self._position = position
        return texts
