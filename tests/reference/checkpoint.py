"""Reads a Hugging Face checkpoint directory into float32 arrays, with no other package than numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


def read_safetensors(path: Path) -> dict[str, FloatArray]:
    """Every tensor of one file as float32. F32, F16 and BF16 are known."""
    raw = path.read_bytes()
    header_bytes = int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8 : 8 + header_bytes])
    payload = raw[8 + header_bytes :]
    tensors: dict[str, FloatArray] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        data = payload[start:end]
        if entry["dtype"] == "F32":
            flat = np.frombuffer(data, dtype="<f4").astype(np.float32)
        elif entry["dtype"] == "F16":
            flat = np.frombuffer(data, dtype="<f2").astype(np.float32)
        elif entry["dtype"] == "BF16":
            # bfloat16 is the upper half of a float32.
            flat = (np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            raise ValueError(f"{path}: {name} has dtype {entry['dtype']}")
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def read_checkpoint(folder: Path) -> tuple[dict[str, Any], dict[str, FloatArray]]:
    """config.json and all weights of a directory, one file or sharded."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    weights: dict[str, FloatArray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        weights |= read_safetensors(path)
    return config, weights
