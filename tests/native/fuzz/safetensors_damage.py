"""Damaged variants of a safetensors file: cut short, with a header that lies, or with bytes flipped at random."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.native.fuzz.gguf_damage import Damage

Header = dict[str, Any]


def split_file(data: bytes) -> tuple[Header, bytes]:
    header_bytes = int.from_bytes(data[:8], "little")
    header: Header = json.loads(data[8 : 8 + header_bytes])
    return header, data[8 + header_bytes :]


def join_file(header: Header | bytes, payload: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload


def truncations(data: bytes, count: int) -> Iterator[Damage]:
    header_bytes = 8 + int.from_bytes(data[:8], "little")
    cuts = {0, 1, 7, 8, 9, header_bytes - 1, header_bytes, header_bytes + 1, len(data) - 1}
    cuts |= {len(data) * step // count for step in range(count)}
    for cut in sorted(cuts):
        yield Damage(f"cut to {cut} of {len(data)} bytes", data[:cut])


def lying_headers(data: bytes, tensor: str) -> Iterator[Damage]:
    """Headers that disagree with the file; ``tensor`` is the entry that is spoilt."""
    header, payload = split_file(data)
    for length in (0, 1, 2**31, 2**62, 2**63, 2**64 - 1, len(data)):
        yield Damage(f"header length {length:#x}", length.to_bytes(8, "little") + data[8:])
    for name, text in (
        ("not JSON", b"{{{{"),
        ("a list", b"[]"),
        ("a number", b"7"),
        ("null", b"null"),
        ("not UTF-8", b'{"\xff\xfe": 1}'),
        ("deeply nested", b"[" * 100_000),
        ("deeply nested entry", b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
        ("empty object", b"{}"),
    ):
        yield Damage(f"header is {name}", join_file(text, payload))

    def with_entry(**changes: Any) -> bytes:
        return join_file({**header, tensor: {**header[tensor], **changes}}, payload)

    start, end = header[tensor]["data_offsets"]
    shape = header[tensor]["shape"]
    for offsets in (
        [end, start],
        [start, end - 1],
        [start, end + 1],
        [start + 2**40, end + 2**40],
        [-1, end],
        [start, 2**63],
        [0.5, end],
        ["0", end],
        [start],
        [],
        None,
        {},
    ):
        yield Damage(f"{tensor} data_offsets {offsets}", with_entry(data_offsets=offsets))
    for new_shape in (
        [],
        shape[:1],
        [*shape, 1],
        [*reversed(shape)] if len(set(shape)) > 1 else [1, *shape],
        [0, *shape[1:]],
        [-shape[0], *shape[1:]],
        [2**32, 2**32],
        [2**63, 2],
        ["64", *shape[1:]],
        [True, *shape[1:]],
        None,
    ):
        yield Damage(f"{tensor} shape {new_shape}", with_entry(shape=new_shape))
    for dtype in ("F64", "I8", "I64", "U8", "BOOL", "F8_E4M3", "F4", "", "f32", None, 7):
        yield Damage(f"{tensor} dtype {dtype!r}", with_entry(dtype=dtype))
    without = {name: entry for name, entry in header.items() if name != tensor}
    yield Damage(f"{tensor} missing", join_file(without, payload))
    yield Damage(f"{tensor} renamed", join_file({**without, f"{tensor}x": header[tensor]}, payload))
    for entry in (None, [], "x", {}):
        yield Damage(f"{tensor} entry is {entry!r}", join_file({**header, tensor: entry}, payload))


def random_damage(data: bytes, seed: int, count: int) -> Iterator[Damage]:
    """Bytes of the header flipped or replaced. Damage of weights alone cannot be told from other weights."""
    source = random.Random(seed)
    header_bytes = 8 + int.from_bytes(data[:8], "little")
    for index in range(count):
        changed = bytearray(data)
        for _ in range(source.choice((1, 1, 2, 4))):
            at = source.randrange(header_bytes)
            if source.random() < 0.5:
                changed[at] ^= 1 << source.randrange(8)
            else:
                changed[at] = source.choice(b'0123456789[]{}",:-e.')
        yield Damage(f"seed {seed} case {index}", bytes(changed))
