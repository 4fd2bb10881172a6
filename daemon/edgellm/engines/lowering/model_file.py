"""Writes llm.gguf: metadata first, then one tensor after another, a bounded number of values in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import gguf
import numpy as np

from edgellm.engines.checkpoint import LocatedTensor
from edgellm.engines.gguf_file import DEFAULT_ALIGNMENT_BYTES, TensorType
from edgellm.engines.gguf_model import EMBEDDING, OUTPUT, PANELLED_TYPES
from edgellm.engines.lowering.model_config import DecoderConfig, llama3_frequency_divisors
from edgellm.engines.lowering.quantise import adjacent_pairs, stored_bytes, stored_type, stored_values
from edgellm.engines.lowering.tensor_map import ROPE_FACTORS, LocatedTensors, MappedTensor, TensorPlan
from edgellm.engines.lowering.vocabulary import Vocabulary
from edgellm.errors import UnsupportedModelError

BLOCK_VALUES = 4 << 20  # 16 MiB of float32
END_TOKEN_ROLES_WRITTEN = ("eos", "eot", "eom")
QUANTISED_FORMAT_VERSION = 2
"""Version of the block layouts that ``general.quantization_version`` names."""


@dataclass(frozen=True, slots=True)
class ModelFileContent:
    """``end_token_ids`` has the tokens that the checkpoint declares, the main one first."""

    name: str
    config: DecoderConfig
    tensors: TensorPlan
    vocabulary: Vocabulary
    bos_token_id: int | None
    pad_token_id: int | None
    unknown_token_id: int | None
    end_token_ids: tuple[int, ...]
    chat_template: str | None
    quantisation: str


def model_file_bytes(tensors: TensorPlan, quantisation: str) -> int:
    """What the tensors will take."""
    return sum(
        stored_bytes(stored_type(mapped.target, mapped.shape, quantisation), mapped.shape)
        for mapped, _ in tensors.located
    )


def shared_embedding_bytes(tensors: TensorPlan, quantisation: str) -> int:
    """As ``gguf_model.shared_embedding_bytes`` will say of the file."""
    shapes = {mapped.target: mapped.shape for mapped, _ in tensors.located}
    if OUTPUT in shapes or EMBEDDING not in shapes:
        return 0
    kind = stored_type(EMBEDDING, shapes[EMBEDDING], quantisation)
    return stored_bytes(kind, shapes[EMBEDDING]) if kind in PANELLED_TYPES else 0


def write_model_file(path: Path, content: ModelFileContent, on_bytes: Callable[[int], None]) -> None:
    """``on_bytes`` is told how many bytes of tensors are written so far."""
    writer = gguf.GGUFWriter(path, content.config.family.architecture)
    _write_metadata(writer, content)
    divisors = _rope_factors(content.config)
    if divisors is not None:
        writer.add_tensor_info(ROPE_FACTORS, divisors.shape, divisors.dtype, divisors.nbytes)
    kinds = [stored_type(mapped.target, mapped.shape, content.quantisation) for mapped, _ in content.tensors.located]
    write_head(writer, content.tensors.located, kinds)
    with path.open("ab") as stream:
        align(stream)
        if divisors is not None:
            stream.write(divisors.tobytes())
            align(stream)
        done_bytes = 0
        for (mapped, tensor), kind in zip(content.tensors.located, kinds, strict=True):
            _write_tensor(stream, mapped, tensor, kind, content.config)
            align(stream)
            done_bytes += stored_bytes(kind, mapped.shape)
            on_bytes(done_bytes)


def _write_tensor(
    stream: BinaryIO, mapped: MappedTensor, tensor: LocatedTensor, kind: TensorType, config: DecoderConfig
) -> None:
    if mapped.permuted_heads and len(mapped.shape) == 1:
        (row,) = tensor.file.rows(tensor.stored, 1)
        values = adjacent_pairs(row.reshape(-1, 1), mapped.permuted_heads).reshape(1, -1)
        stream.write(stored_values(mapped.target, values, kind).tobytes())
        return
    rows = max(1, BLOCK_VALUES // mapped.shape[-1])
    if mapped.permuted_heads:
        # Whole heads at a time: rows move within a head only.
        rows = max(1, rows // config.head_size) * config.head_size
    for block in tensor.file.rows(tensor.stored, rows):
        if mapped.permuted_heads:
            block = adjacent_pairs(block, block.shape[0] // config.head_size)
        stream.write(stored_values(mapped.target, block, kind).tobytes())


def write_head(writer: gguf.GGUFWriter, located: LocatedTensors, kinds: Sequence[TensorType]) -> None:
    """Everything before the first tensor's bytes: what was added to ``writer`` and what the tensors are, of which
    ``kinds`` are the encodings. Closes it.
    """
    for (mapped, _), kind in zip(located, kinds, strict=True):
        # The writer takes the shape in values; numpy's type only where the format's is not given.
        writer.add_tensor_info(
            mapped.target,
            mapped.shape,
            np.dtype(np.float32),
            stored_bytes(kind, mapped.shape),
            raw_dtype=gguf.GGMLQuantizationType(int(kind)),
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def align(stream: BinaryIO) -> None:
    """Zeros up to where the next tensor may begin."""
    stream.write(bytes(-stream.tell() % DEFAULT_ALIGNMENT_BYTES))


def _rope_factors(config: DecoderConfig) -> np.ndarray[tuple[int], np.dtype[np.float32]] | None:
    if config.rope_scaling.kind != "llama3":
        return None
    return np.array(llama3_frequency_divisors(config), dtype="<f4")


def _write_metadata(writer: gguf.GGUFWriter, content: ModelFileContent) -> None:
    config = content.config
    writer.add_name(content.name)
    writer.add_quantization_version(QUANTISED_FORMAT_VERSION)
    writer.add_block_count(config.layer_count)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.head_count)
    writer.add_head_count_kv(content.tensors.kv_head_count)
    writer.add_key_length(config.head_size)
    writer.add_value_length(config.head_size)
    writer.add_layer_norm_rms_eps(config.norm_epsilon)
    writer.add_rope_dimension_count(config.head_size)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_vocab_size(config.vocab_size)
    if config.rope_scaling.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_scaling.factor)
    if config.sliding_window is not None:
        writer.add_sliding_window(config.sliding_window)
    _write_vocabulary(writer, content)


def _write_vocabulary(writer: gguf.GGUFWriter, content: ModelFileContent) -> None:
    vocabulary = content.vocabulary
    writer.add_tokenizer_model(vocabulary.model)
    if vocabulary.pre is not None:
        writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(list(vocabulary.texts))
    writer.add_token_types([int(kind) for kind in vocabulary.kinds])
    if vocabulary.scores is not None:
        writer.add_token_scores(list(vocabulary.scores))
    if vocabulary.model == "gpt2":
        writer.add_token_merges(list(vocabulary.merges))
    writer.add_add_space_prefix(vocabulary.adds_space_prefix)
    writer.add_add_bos_token(vocabulary.adds_bos)
    writer.add_add_eos_token(vocabulary.adds_eos)
    for name, token_id in (
        ("bos", content.bos_token_id),
        ("padding", content.pad_token_id),
        ("unknown", content.unknown_token_id),
        *end_token_roles(content),
    ):
        if token_id is not None:
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token_id)
    if content.chat_template is not None:
        writer.add_chat_template(content.chat_template)


def end_token_roles(content: ModelFileContent) -> list[tuple[str, int]]:
    """The declared end tokens under the names the format has; those known by their text need none but the first."""
    known = content.vocabulary.known_end_tokens()
    first, rest = content.end_token_ids[:1], [index for index in content.end_token_ids[1:] if index not in known]
    named = [*first, *rest]
    if len(named) > len(END_TOKEN_ROLES_WRITTEN):
        raise UnsupportedModelError(
            f"the checkpoint declares {len(content.end_token_ids)} end tokens, of which {len(named)} are not known by "
            f"their text: {len(END_TOKEN_ROLES_WRITTEN)} can be kept"
        )
    return list(zip(END_TOKEN_ROLES_WRITTEN, named, strict=False))
