"""Makes a Q8_0 copy of a GGUF file: every matrix is dequantised and quantised anew, all else is copied."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


def write_q8_0_copy(source: Path, target: Path) -> None:
    """Write ``target`` whole or not at all. Vectors (norms, biases) keep their type."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields[gguf.Keys.General.ARCHITECTURE].contents())
    partial = target.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in (gguf.Keys.General.ARCHITECTURE, gguf.Keys.General.FILE_TYPE):
            continue
        kind = field.types[0]
        item_kind = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=item_kind)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    for tensor in reader.tensors:
        if len(tensor.shape) < 2:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, q8_0), raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(target)
