"""Damaged variants of a GGUF file: cut short, numbers made absurd field by field, and bytes flipped at random.

The layout is walked by an own small reader, so that every count, length, type and offset is hit on purpose and not
only by luck.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING_TYPE = 8
ARRAY_TYPE = 9
ARRAY_ITEMS_VISITED = 3

ABSURD_NUMBERS = (0, 1, 0x7F, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class Field:
    """One number or text of the header: where it is and what it says."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Damage:
    name: str
    data: bytes


class _Walker:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.fields: list[Field] = []

    def number(self, name: str, size: int) -> int:
        self.fields.append(Field(name, self.position, size))
        value = int.from_bytes(self.data[self.position : self.position + size], "little")
        self.position += size
        return value

    def text(self, name: str, *, visited: bool = True) -> str:
        if visited:
            length = self.number(f"{name} length", 8)
            self.fields.append(Field(f"{name} text", self.position, min(length, 8)))
        else:
            length = int.from_bytes(self.data[self.position : self.position + 8], "little")
            self.position += 8
        raw = self.data[self.position : self.position + length]
        self.position += length
        return raw.decode("utf-8", "replace")

    def value(self, name: str, kind: int) -> None:
        if kind == STRING_TYPE:
            self.text(name)
        elif kind == ARRAY_TYPE:
            item_kind = self.number(f"{name} item type", 4)
            count = self.number(f"{name} item count", 8)
            for index in range(count):
                visited = index < ARRAY_ITEMS_VISITED or index == count - 1
                if item_kind == STRING_TYPE:
                    self.text(f"{name}[{index}]", visited=visited)
                elif visited:
                    self.number(f"{name}[{index}]", SCALAR_BYTES[item_kind])
                else:
                    self.position += SCALAR_BYTES[item_kind]
        else:
            self.number(name, SCALAR_BYTES[kind])

    def walk(self) -> None:
        self.number("magic", 4)
        self.number("version", 4)
        tensor_count = self.number("tensor count", 8)
        key_count = self.number("key count", 8)
        for _ in range(key_count):
            key = self.text("key")
            self.value(key, self.number(f"{key} type", 4))
        for index in range(tensor_count):
            name = self.text(f"tensor {index} name")
            dimension_count = self.number(f"{name} dimension count", 4)
            for dimension in range(dimension_count):
                self.number(f"{name} dimension {dimension}", 8)
            self.number(f"{name} type", 4)
            self.number(f"{name} offset", 8)


def header_fields(data: bytes) -> tuple[list[Field], int]:
    """All fields in file order and the byte where the header ends."""
    walker = _Walker(data)
    walker.walk()
    return walker.fields, walker.position


def _replaced(data: bytes, offset: int, new: bytes) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


def truncations(data: bytes, count: int) -> Iterator[Damage]:
    """Cut at the borders of the first fields, evenly through the header, at its end, and inside the tensors."""
    fields, header_bytes = header_fields(data)
    cuts = {field.offset for field in fields[:12]} | {field.offset + 1 for field in fields[:4]}
    cuts |= {header_bytes * step // count for step in range(count)}
    cuts |= {header_bytes, header_bytes + 1, (header_bytes + len(data)) // 2, len(data) - 1}
    for cut in sorted(cuts):
        yield Damage(f"cut to {cut} of {len(data)} bytes", data[:cut])


def absurd_numbers(data: bytes, tensors_visited: int = 6) -> Iterator[Damage]:
    """Every header field set to each absurd number that fits it; of the tensors only the first ones."""
    fields, _ = header_fields(data)
    tensor_fields = 0
    for field in fields:
        if field.name.endswith(" text"):
            yield Damage(f"{field.name} not UTF-8", _replaced(data, field.offset, b"\xff" * field.size))
            yield Damage(f"{field.name} zeros", _replaced(data, field.offset, bytes(field.size)))
            continue
        if field.name.endswith(" offset"):
            tensor_fields += 1
            if tensor_fields > tensors_visited:
                return
        seen = {data[field.offset : field.offset + field.size]}
        for number in ABSURD_NUMBERS:
            new = (number & (2 ** (8 * field.size) - 1)).to_bytes(field.size, "little")
            if new not in seen:
                seen.add(new)
                yield Damage(f"{field.name} = {number:#x}", _replaced(data, field.offset, new))
        if field.size in (4, 8):
            for value in (float("nan"), float("inf"), -1.0, 1e-300):
                code = "<f" if field.size == 4 else "<d"
                yield Damage(f"{field.name} = {value}", _replaced(data, field.offset, struct.pack(code, value)))


def random_damage(data: bytes, seed: int, count: int) -> Iterator[Damage]:
    """Bytes flipped, spans zeroed, repeated or removed at random places, mostly in the header."""
    source = random.Random(seed)
    _, header_bytes = header_fields(data)
    for index in range(count):
        changed = bytearray(data)
        what: list[str] = []
        for _ in range(source.choice((1, 1, 1, 2, 4, 16))):
            limit = min(len(changed), header_bytes if source.random() < 0.9 else len(data))
            at = source.randrange(limit)
            kind = source.choice(("flip", "flip", "byte", "zero", "copy", "cut", "grow"))
            length = source.choice((1, 4, 8, 32))
            if kind == "flip":
                changed[at] ^= 1 << source.randrange(8)
            elif kind == "byte":
                changed[at] = source.randrange(256)
            elif kind == "zero":
                changed[at : at + length] = bytes(length)
            elif kind == "copy":
                other = source.randrange(limit)
                changed[at : at + length] = changed[other : other + length]
            elif kind == "cut":
                del changed[at : at + length]
            else:
                changed[at:at] = source.randbytes(length)
            what.append(f"{kind}@{at}")
        yield Damage(f"seed {seed} case {index}: {' '.join(what)}", bytes(changed))
