"""Memory of TensorRT Edge-LLM: the KV pool by its own formula; weights are read from the checkpoint at load."""

from __future__ import annotations

from edgellm.engines.resources.estimate import Estimate, Part

# Pages of the compiled pool, in tokens; a pool has exactly the pages of its sequences at full length.
KV_PAGE_TOKENS = 128
KV_VALUE_BYTES = {"fp16": 2, "bf16": 2, "float16": 2, "bfloat16": 2, "fp8": 1, "float8_e4m3fn": 1, "int8": 1}
# CUDA context, plugin and engine workspace. Not measured on a device yet: see what a load really took.
CONTEXT_BYTES = 1 << 30
# The builder keeps no weights it externalises, but parses the graph and tunes kernels. Not measured on a device yet.
BUILDER_BYTES = 2 << 30
ENGINE_BYTES = 256 << 20


def kv_pool_bytes(
    *, max_batch_size: int, max_kv_tokens: int, layer_count: int, kv_head_count: int, head_size: int, dtype: str
) -> int:
    """pages x 128 x 2 x layers x KV heads x head size x bytes of a value; pages = batch x ceil(tokens / 128)."""
    pages = max_batch_size * -(-max_kv_tokens // KV_PAGE_TOKENS)
    value_bytes = KV_VALUE_BYTES.get(dtype.lower(), 2)
    return pages * KV_PAGE_TOKENS * 2 * layer_count * kv_head_count * head_size * value_bytes


def load_estimate(
    *, checkpoint_weight_bytes: int, engine_bytes: int, pool_bytes: int, draft_weight_bytes: int = 0
) -> Estimate:
    """Unified memory: the converted weights, the engines and the pool are resident together."""
    parts = [
        Part("weights", checkpoint_weight_bytes, "the checkpoint's tensors"),
        Part("engines", engine_bytes, "the bundle's files"),
        Part("KV pool", pool_bytes, "compiled batch and capacity"),
        Part("CUDA context", CONTEXT_BYTES, "assumed"),
    ]
    if draft_weight_bytes:
        parts.insert(1, Part("draft weights", draft_weight_bytes, "the draft checkpoint's tensors"))
    return Estimate("load", tuple(parts))


def build_estimate(*, baked_weight_bytes: int) -> Estimate:
    """``baked_weight_bytes`` are the most weights that the profile may put into the engine.

    The others stay in the checkpoint, whose mapped pages the system may drop. The build is watched besides: it is ended
    when the machine runs short.
    """
    disk = (
        Part("engines", ENGINE_BYTES, "graphs and kernels, assumed"),
        Part("weights in engines", baked_weight_bytes, "at most the checkpoint's"),
    )
    return Estimate("builder", (Part("builder", BUILDER_BYTES, "assumed"),), disk)
