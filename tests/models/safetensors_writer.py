"""Writes safetensors files from float32 arrays in a chosen storage type. Rounding is to nearest even."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

STORAGE_NAMES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


def to_bfloat16_bits(values: FloatArray) -> NDArray[np.uint16]:
    """The upper halves of the float32 bit patterns, rounded to nearest even. Values are finite."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).astype(np.uint16)


def stored_bytes(values: FloatArray, dtype: str) -> bytes:
    """The little-endian bytes of ``values`` in storage type ``dtype`` (f32, f16, bf16)."""
    if dtype == "f32":
        return np.ascontiguousarray(values, dtype="<f4").tobytes()
    if dtype == "f16":
        return np.ascontiguousarray(values, dtype="<f2").tobytes()
    if dtype == "bf16":
        return to_bfloat16_bits(values).astype("<u2").tobytes()
    raise ValueError(f"unknown storage type {dtype!r}; known are {', '.join(STORAGE_NAMES)}")


def write_safetensors(path: Path, tensors: Mapping[str, FloatArray], dtype: str) -> None:
    """Write one file: header length (u64), JSON header padded to 8 bytes, then the tensors back to back."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    payload: list[bytes] = []
    offset = 0
    for name, values in tensors.items():
        data = stored_bytes(values, dtype)
        header[name] = {
            "dtype": STORAGE_NAMES[dtype],
            "shape": list(values.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
        payload.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for data in payload:
            file.write(data)


def write_sharded(folder: Path, tensors: Mapping[str, FloatArray], dtype: str, shard_count: int) -> None:
    """Write ``model.safetensors``, or with several shards the numbered files and their index."""
    if shard_count == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return
    names = list(tensors)
    per_shard = -(-len(names) // shard_count)
    weight_map: dict[str, str] = {}
    total_bytes = 0
    for shard in range(shard_count):
        file_name = f"model-{shard + 1:05d}-of-{shard_count:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard * per_shard : (shard + 1) * per_shard]}
        write_safetensors(folder / file_name, part, dtype)
        weight_map.update(dict.fromkeys(part, file_name))
        total_bytes += sum(len(stored_bytes(values, dtype)) for values in part.values())
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
