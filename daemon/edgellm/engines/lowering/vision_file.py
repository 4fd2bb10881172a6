"""Writes visual/visual.gguf: the vision tower and its connector, under the names that GGUF files of vision models
share. Matrices are f16, or f32 where the decoder's are; what is added to rows, and norms, stay f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np

from edgellm.engines.checkpoint import Checkpoint
from edgellm.engines.gguf_file import TensorType
from edgellm.engines.lowering.model_file import BLOCK_VALUES, align, write_head
from edgellm.engines.lowering.quantise import stored_bytes, stored_values
from edgellm.engines.lowering.tensor_map import LocatedTensors, MappedTensor, locate
from edgellm.engines.lowering.vision_config import VisionConfig

ARCHITECTURE = "clip"
PROJECTOR = "idefics3"
POSITIONS = "v.position_embd.weight"
_TOWER = "model.vision_model."
_CONNECTOR = "model.connector.modality_projection.proj.weight"
_COLOURS = 3


def plan_vision_tensors(config: VisionConfig, checkpoint: Checkpoint) -> LocatedTensors:
    """Every tensor of the tower and the connector, found and of the right shape. Raises CheckpointError."""
    return locate(_expected(config), checkpoint)


def vision_file_bytes(located: LocatedTensors, quantisation: str) -> int:
    """What the tensors will take."""
    return sum(stored_bytes(_stored_type(mapped, quantisation), mapped.shape) for mapped, _ in located)


def write_vision_file(
    path: Path,
    name: str,
    config: VisionConfig,
    located: LocatedTensors,
    quantisation: str,
    on_bytes: Callable[[int], None],
) -> None:
    """``on_bytes`` is told how many bytes of tensors are written so far."""
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    _write_metadata(writer, name, config)
    kinds = [_stored_type(mapped, quantisation) for mapped, _ in located]
    write_head(writer, located, kinds)
    with path.open("ab") as stream:
        align(stream)
        done_bytes = 0
        for (mapped, tensor), kind in zip(located, kinds, strict=True):
            rows = max(1, BLOCK_VALUES * mapped.shape[0] // int(np.prod(mapped.shape)))
            for block in tensor.file.rows(tensor.stored, rows):
                stream.write(stored_values(mapped.target, block, kind).tobytes())
            align(stream)
            done_bytes += stored_bytes(kind, mapped.shape)
            on_bytes(done_bytes)


def _expected(config: VisionConfig) -> Iterator[MappedTensor]:
    hidden, inner, patch = config.hidden_size, config.intermediate_size, config.patch_size

    def pair(source: str, target: str, *shape: int) -> Iterator[MappedTensor]:
        yield MappedTensor(f"{_TOWER}{source}.weight", f"{target}.weight", shape)
        yield MappedTensor(f"{_TOWER}{source}.bias", f"{target}.bias", shape[:1])

    yield from pair("embeddings.patch_embedding", "v.patch_embd", hidden, _COLOURS, patch, patch)
    yield MappedTensor(f"{_TOWER}embeddings.position_embedding.weight", POSITIONS, (config.patch_count, hidden))
    for layer in range(config.layer_count):
        source, target = f"encoder.layers.{layer}.", f"v.blk.{layer}."
        yield from pair(source + "layer_norm1", target + "ln1", hidden)
        for name in ("q", "k", "v"):
            yield from pair(f"{source}self_attn.{name}_proj", f"{target}attn_{name}", hidden, hidden)
        yield from pair(source + "self_attn.out_proj", target + "attn_out", hidden, hidden)
        yield from pair(source + "layer_norm2", target + "ln2", hidden)
        yield from pair(source + "mlp.fc1", target + "ffn_up", inner, hidden)
        yield from pair(source + "mlp.fc2", target + "ffn_down", hidden, inner)
    yield from pair("post_layernorm", "v.post_ln", hidden)
    shuffled = hidden * config.scale_factor**2
    yield MappedTensor(_CONNECTOR, "mm.model.fc.weight", (config.projection_size, shuffled))


def _stored_type(mapped: MappedTensor, quantisation: str) -> TensorType:
    is_matrix = len(mapped.shape) > 1 and mapped.target != POSITIONS
    return TensorType.F16 if is_matrix and quantisation != "f32" else TensorType.F32


def _write_metadata(writer: gguf.GGUFWriter, name: str, config: VisionConfig) -> None:
    processing = config.processing
    writer.add_name(name)
    writer.add_string("clip.projector_type", PROJECTOR)
    writer.add_bool("clip.has_vision_encoder", True)
    for key, number in (
        ("image_size", config.image_size),
        ("patch_size", config.patch_size),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", config.intermediate_size),
        ("block_count", config.layer_count),
        ("attention.head_count", config.head_count),
        ("projector.scale_factor", config.scale_factor),
        ("projection_dim", config.projection_size),
    ):
        writer.add_uint32(f"clip.vision.{key}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", config.norm_epsilon)
    writer.add_float32("clip.vision.rescale_factor", processing.rescale_factor)
    writer.add_array("clip.vision.image_mean", list(processing.mean))
    writer.add_array("clip.vision.image_std", list(processing.deviation))
