"""Which tensors a decoder has, under the names and in the layouts of both worlds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from edgellm.engines.checkpoint import Checkpoint, LocatedTensor
from edgellm.engines.checkpoint_names import MODULES_FILE
from edgellm.engines.gguf_model import EMBEDDING, OUTPUT
from edgellm.engines.lowering.model_config import DecoderConfig
from edgellm.errors import CheckpointError, UnsupportedModelError

ROPE_FACTORS = "rope_freqs.weight"
_HEAD = "lm_head.weight"
_DECODER = "model."
"""Before the names of a causal model's tensors; a decoder that was saved alone, as for embeddings, has them bare."""
# Buffers that old checkpoints carry and that follow from the configuration.
_DERIVED = re.compile(r"(model\.)?(text_model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """``permuted_heads`` is the number of heads whose rows are reordered, 0 for none. ``optional``: may be absent."""

    source: str
    target: str
    shape: tuple[int, ...]
    permuted_heads: int = 0
    optional: bool = False


LocatedTensors = tuple[tuple[MappedTensor, LocatedTensor], ...]


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """``located`` are the tensors to lower, in the order of the file."""

    located: LocatedTensors
    kv_head_count: int


def plan_tensors(
    config: DecoderConfig, checkpoint: Checkpoint, *, inside: str = "", elsewhere: frozenset[str] = frozenset()
) -> TensorPlan:
    """Every tensor of the decoder, found and of the right shape, and none left over.

    ``inside`` is what the names of its tensors begin with where it is part of a larger model, ``elsewhere`` what others
    read.
    """
    prefix = inside or (_DECODER if any(name.startswith(_DECODER) for name in checkpoint.tensors) else "")
    kv_head_count = config.kv_head_count or _kv_heads_from_weights(config, checkpoint, prefix)
    has_head = _HEAD in checkpoint.tensors
    # A model that only embeds needs no head, whatever the configuration of the whole model says.
    only_embeds = not prefix and not has_head and (checkpoint.directory / MODULES_FILE).exists()
    tied = not has_head if config.tied is None or only_embeds else config.tied
    located = locate(_expected(config, kv_head_count, tied, prefix), checkpoint)
    _refuse_unknown(checkpoint, {mapped.source for mapped, _ in located} | elsewhere, tied)
    return TensorPlan(located, kv_head_count)


def locate(expected: Iterable[MappedTensor], checkpoint: Checkpoint) -> LocatedTensors:
    """The tensors where they are. Raises CheckpointError for one that is missing or of another shape."""
    located: list[tuple[MappedTensor, LocatedTensor]] = []
    for mapped in expected:
        tensor = checkpoint.tensors.get(mapped.source)
        if tensor is None:
            if mapped.optional:
                continue
            raise CheckpointError(f"{checkpoint.directory}: tensor {mapped.source} is missing from the weights")
        if tensor.stored.shape != mapped.shape:
            raise CheckpointError(
                f"{tensor.file.path}: tensor {mapped.source}: its shape is {list(tensor.stored.shape)}, "
                f"config.json asks for {list(mapped.shape)}"
            )
        located.append((mapped, tensor))
    return tuple(located)


def _expected(config: DecoderConfig, kv_head_count: int, tied: bool, prefix: str) -> Iterator[MappedTensor]:
    hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_size
    query_rows, kv_rows = config.head_count * size, kv_head_count * size
    query_heads, kv_heads = (config.head_count, kv_head_count) if config.family.permuted else (0, 0)
    yield MappedTensor(prefix + "embed_tokens.weight", EMBEDDING, (config.vocab_size, hidden))
    for layer in range(config.layer_count):
        source, target = f"{prefix}layers.{layer}.", f"blk.{layer}."
        yield MappedTensor(source + "input_layernorm.weight", target + "attn_norm.weight", (hidden,))
        for name, rows, heads in (("q", query_rows, query_heads), ("k", kv_rows, kv_heads), ("v", kv_rows, 0)):
            projection = f"{source}self_attn.{name}_proj."
            yield MappedTensor(projection + "weight", f"{target}attn_{name}.weight", (rows, hidden), heads)
            yield MappedTensor(projection + "bias", f"{target}attn_{name}.bias", (rows,), heads, optional=True)
        if config.family.query_key_norms:
            for name in ("q", "k"):
                yield MappedTensor(f"{source}self_attn.{name}_norm.weight", f"{target}attn_{name}_norm.weight", (size,))
        yield MappedTensor(source + "self_attn.o_proj.weight", target + "attn_output.weight", (hidden, query_rows))
        yield MappedTensor(source + "post_attention_layernorm.weight", target + "ffn_norm.weight", (hidden,))
        yield MappedTensor(source + "mlp.gate_proj.weight", target + "ffn_gate.weight", (inner, hidden))
        yield MappedTensor(source + "mlp.up_proj.weight", target + "ffn_up.weight", (inner, hidden))
        yield MappedTensor(source + "mlp.down_proj.weight", target + "ffn_down.weight", (hidden, inner))
    yield MappedTensor(prefix + "norm.weight", "output_norm.weight", (hidden,))
    if not tied:
        yield MappedTensor(_HEAD, OUTPUT, (config.vocab_size, hidden))


def _kv_heads_from_weights(config: DecoderConfig, checkpoint: Checkpoint, prefix: str) -> int:
    """Families differ in what an absent num_key_value_heads means; the weights do not."""
    key = checkpoint.tensors.get(prefix + "layers.0.self_attn.k_proj.weight")
    if key is None or len(key.stored.shape) != 2 or key.stored.shape[0] % config.head_size:
        return config.head_count
    return key.stored.shape[0] // config.head_size or config.head_count


def _refuse_unknown(checkpoint: Checkpoint, known: frozenset[str] | set[str], tied: bool) -> None:
    """A tensor that nobody reads would silently change what the model computes."""
    known = {*known, _HEAD} if tied else known
    for name, tensor in checkpoint.tensors.items():
        if name not in known and not _DERIVED.fullmatch(name):
            raise UnsupportedModelError(
                f"{tensor.file.path}: tensor {name[:200]} is not part of this family as the runtime knows it"
            )
