"""What a GGUF file says about its model: family, shapes, limits and end tokens, checked for this runtime."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import resources

from edgellm.engines.gguf_file import GgufFile, TensorType
from edgellm.errors import CheckpointError, UnsupportedModelError

SUPPORTED_ARCHITECTURES = ("llama", "qwen2", "qwen3")
SUPPORTED_ROPE_SCALINGS = ("none", "linear")

END_TOKEN_ROLES = ("eos", "eot", "eom")
_CONTROL = 3
EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
# Matrices of these types are packed into panels, and computed from those alone (has_panels in the runtime).
PANELLED_TYPES = frozenset({TensorType.Q8_0, TensorType.Q4_0, TensorType.Q4_1})


@dataclass(frozen=True, slots=True)
class ModelShape:
    """``weight_type`` is the type most weight bytes have, in lower case."""

    architecture: str
    context_length: int
    vocab_size: int
    layer_count: int
    head_count: int
    kv_head_count: int
    head_size: int
    hidden_size: int
    weight_type: str
    bos_token_id: int | None
    end_token_ids: tuple[int, ...]


@cache
def end_token_texts() -> frozenset[str]:
    """Control tokens that end a turn or a text whatever a file declares. The C++ loader is built from the same file."""
    return frozenset(resources.files(__package__).joinpath("end_token_texts.txt").read_text("utf-8").split())


def shared_embedding_bytes(gguf: GgufFile) -> int:
    """Size of an embedding that is packed to be the output matrix too; 0 for another.

    The weights file and its panels take as much together as the file does, but for this one: its panels are computed
    with at every step, and the rows of the tokens in a prompt are read from the file.
    """
    embedding = gguf.tensors.get(EMBEDDING)
    if embedding is None or OUTPUT in gguf.tensors or embedding.type not in PANELLED_TYPES:
        return 0
    return embedding.size_bytes


def model_shape(gguf: GgufFile) -> ModelShape:
    """Raises UnsupportedModelError naming what this runtime lacks, CheckpointError for what contradicts itself."""
    architecture = gguf.require_string("general.architecture")
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise UnsupportedModelError(
            f"{gguf.path}: models of family {architecture!r} are not supported (supported: "
            f"{', '.join(SUPPORTED_ARCHITECTURES)})"
        )
    _refuse_variants(gguf, architecture)
    head_count = gguf.require_integer(f"{architecture}.attention.head_count", lowest=1)
    hidden_size = gguf.require_integer(f"{architecture}.embedding_length", lowest=1)
    texts = gguf.strings("tokenizer.ggml.tokens") or []
    embedding = gguf.tensors.get(EMBEDDING)
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(f"{gguf.path}: tensor {EMBEDDING} is missing or not a matrix")
    if embedding.shape != (hidden_size, len(texts)):
        raise CheckpointError(
            f"{gguf.path}: tensor {EMBEDDING} has shape {list(embedding.shape)}, while "
            f"{architecture}.embedding_length is {hidden_size} and the vocabulary has {len(texts)} tokens"
        )
    head_size = gguf.integer(f"{architecture}.attention.key_length", lowest=1)
    return ModelShape(
        architecture=architecture,
        context_length=_context_length(gguf, architecture),
        vocab_size=len(texts),
        layer_count=gguf.require_integer(f"{architecture}.block_count", lowest=1),
        head_count=head_count,
        kv_head_count=gguf.integer(f"{architecture}.attention.head_count_kv", lowest=1) or head_count,
        head_size=head_size or hidden_size // head_count,
        hidden_size=hidden_size,
        weight_type=_weight_type(gguf),
        bos_token_id=_token_id(gguf, "bos", len(texts)),
        end_token_ids=end_token_ids(gguf),
    )


def end_token_ids(gguf: GgufFile) -> tuple[int, ...]:
    """Every token that ends a sequence: those the file names, and control tokens known by their text."""
    texts = gguf.strings("tokenizer.ggml.tokens") or []
    kinds = gguf.integers("tokenizer.ggml.token_type") or []
    declared = {_token_id(gguf, role, len(texts)) for role in END_TOKEN_ROLES} - {None}
    by_text = {
        index
        for index, (text, kind) in enumerate(zip(texts, kinds, strict=False))
        if kind == _CONTROL and text in end_token_texts()
    }
    return tuple(sorted({index for index in declared if index is not None} | by_text))


def _context_length(gguf: GgufFile, architecture: str) -> int:
    """Inside a sliding window nothing differs from full attention; beyond it the runtime does not go."""
    length = gguf.require_integer(f"{architecture}.context_length", lowest=1)
    return min(length, gguf.integer(f"{architecture}.attention.sliding_window", lowest=1) or length)


def _refuse_variants(gguf: GgufFile, architecture: str) -> None:
    if gguf.integer(f"{architecture}.expert_count"):
        raise UnsupportedModelError(f"{gguf.path}: mixtures of experts are not supported")
    scaling = gguf.string(f"{architecture}.rope.scaling.type") or "none"
    if scaling not in SUPPORTED_ROPE_SCALINGS:
        raise UnsupportedModelError(
            f"{gguf.path}: rope scaling {scaling!r} is not supported (supported: {', '.join(SUPPORTED_ROPE_SCALINGS)})"
        )


def _token_id(gguf: GgufFile, role: str, vocab_size: int) -> int | None:
    key = f"tokenizer.ggml.{role}_token_id"
    index = gguf.integer(key, lowest=-1, highest=(1 << 32) - 1)
    if index is None or index in (-1, (1 << 32) - 1):
        return None
    if index >= vocab_size:
        raise CheckpointError(f"{gguf.path}: {key} is {index}, the vocabulary has {vocab_size} tokens")
    return index


def _weight_type(gguf: GgufFile) -> str:
    bytes_by_type: Counter[str] = Counter()
    for tensor in gguf.tensors.values():
        if len(tensor.shape) > 1:
            bytes_by_type[tensor.type.name.lower()] += tensor.size_bytes
    return bytes_by_type.most_common(1)[0][0]
