"""Memory of the native runtime: what a load maps and allocates, and what lowering a checkpoint takes."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.engines.resources.estimate import SPARE_MEMORY_BYTES, Estimate, Part

# The runtime's own page of keys and values, in positions (RuntimeOptions.kv_page_tokens).
KV_PAGE_TOKENS = 32
KV_VALUE_BYTES = {"f16": 2, "f32": 4}
# Rows of a step beyond those of decoding sequences (RuntimeOptions.prefill_chunk_tokens).
PREFILL_ROWS = 128
# Libraries and runtime objects: measured with a model of no weight to speak of.
LIBRARIES_BYTES = 16 << 20
# The tokenizer in Rust, the vocabulary in C++, tables for guided decoding: measured with 49,152 tokens.
TOKENIZER_BYTES_PER_TOKEN = 1100
# Lowering works in blocks of rows: Python, numpy and the quantiser, whatever the model's size.
LOWERING_BYTES = 192 << 20
LOWERING_BYTES_PER_TOKEN = 2000


# Rows of images that are kept for later turns (ImageEncoder::kMaxKeptBytes).
KEPT_IMAGE_BYTES = 128 << 20
# Attention of one tile: the scores, what is laid out of them for a product, and the result of their softmax.
VISION_SCORE_COPIES = 3


@dataclass(frozen=True, slots=True)
class VisionShape:
    """``model_bytes`` is the size of the tower's file; sizes are of one tile."""

    model_bytes: int
    patch_count: int
    head_count: int
    hidden_size: int
    intermediate_size: int

    @property
    def activation_bytes(self) -> int:
        rows = 8 * self.hidden_size + 3 * self.intermediate_size
        return 4 * self.patch_count * (VISION_SCORE_COPIES * self.head_count * self.patch_count + rows)


@dataclass(frozen=True, slots=True)
class NativeShape:
    """What the runtime's memory depends on. ``model_bytes`` is the size of the weights file.

    ``context_length`` is the most tokens of one sequence that the model was made for. ``shared_embedding_bytes`` is the
    size of an embedding that serves as the output matrix too, see ``shared_embedding_bytes()``.
    """

    model_bytes: int
    layer_count: int
    kv_head_count: int
    head_size: int
    vocab_size: int
    context_length: int
    kv_cache_dtype: str = "f16"
    shared_embedding_bytes: int = 0
    vision: VisionShape | None = None

    @property
    def kv_bytes_per_token(self) -> int:
        value_bytes = KV_VALUE_BYTES.get(self.kv_cache_dtype, KV_VALUE_BYTES["f32"])
        return 2 * self.layer_count * self.kv_head_count * self.head_size * value_bytes


def kv_pages(max_kv_tokens: int, max_batch_size: int, *, context_reuse: bool) -> int:
    """Pages of the pool: each sequence at full length, and one sequence's worth that the context cache may keep."""
    pages_per_sequence = -(-max_kv_tokens // KV_PAGE_TOKENS)
    return pages_per_sequence * (max_batch_size + (1 if context_reuse else 0))


def load_estimate(shape: NativeShape, max_kv_tokens: int, max_batch_size: int, *, context_reuse: bool) -> Estimate:
    """Resident memory at its peak: the pool is reserved at once and becomes resident as sequences fill it."""
    pages = kv_pages(max_kv_tokens, max_batch_size, context_reuse=context_reuse)
    kept = " and a cache of as many as one" if context_reuse else ""
    kv = Part(
        "KV pool",
        pages * KV_PAGE_TOKENS * shape.kv_bytes_per_token,
        f"{max_batch_size} x {max_kv_tokens} tokens{kept}, {shape.kv_bytes_per_token} bytes a token",
    )
    rows = PREFILL_ROWS + max_batch_size
    scratch = Part(
        "scratch",
        # Logits of one row each, and activations: some rows for every value of a matrix's input and output, of which
        # a layer's weights are the product.
        max_batch_size * shape.vocab_size * 4 + rows * _row_bytes(shape),
        f"{rows} rows a step",
    )
    tokenizer = Part("tokenizer", shape.vocab_size * TOKENIZER_BYTES_PER_TOKEN, f"{shape.vocab_size} tokens")
    weights = [Part("weights", shape.model_bytes, "mapped file")]
    if shape.shared_embedding_bytes:
        weights.append(Part("embedding", shape.shared_embedding_bytes, "its rows, beside the output matrix"))
    if shape.vision is not None:
        tower = shape.vision
        weights.append(Part("vision tower", tower.model_bytes, "mapped file"))
        weights.append(Part("images", tower.activation_bytes + KEPT_IMAGE_BYTES, "one that is encoded, and kept ones"))
    return Estimate("load", (*weights, kv, tokenizer, scratch, Part("libraries", LIBRARIES_BYTES, "measured")))


def largest_kv_tokens(shape: NativeShape, max_batch_size: int, available_bytes: int, *, context_reuse: bool) -> int:
    """The most tokens of one sequence that fit into ``available_bytes``, whole pages; 0 when none do."""
    rest = load_estimate(shape, 0, max_batch_size, context_reuse=context_reuse).memory_bytes + SPARE_MEMORY_BYTES
    sequences = max_batch_size + (1 if context_reuse else 0)
    page_bytes = KV_PAGE_TOKENS * shape.kv_bytes_per_token * sequences
    return max(0, (available_bytes - rest) // page_bytes) * KV_PAGE_TOKENS


def lowering_estimate(output_bytes: int, vocab_size: int) -> Estimate:
    """Weights pass through in blocks; the mapped checkpoint is the system's to drop."""
    memory = (
        Part("builder", LOWERING_BYTES, "measured"),
        Part("vocabulary", vocab_size * LOWERING_BYTES_PER_TOKEN, f"{vocab_size} tokens"),
    )
    return Estimate("lowering", memory, (Part("bundle", output_bytes, "its tensors"),))


def _row_bytes(shape: NativeShape) -> int:
    """Activations of one row of a step, in float32, bounded by the weights of a layer.

    A layer's matrices hold about 12 hidden x hidden values of at least half a byte; a row has about 14 hidden values.
    """
    layer_values = 2 * shape.model_bytes // max(1, shape.layer_count)
    hidden = int((layer_values / 12) ** 0.5)
    return 14 * hidden * 4
