"""A decoder-only transformer in numpy, float32, one whole sequence at a time: slow, short, and easy to check by eye.

Families: llama, mistral, qwen2, qwen3 in the form Hugging Face publishes their weights. There is no KV cache, no
batching and no reordering: every position is computed from all earlier ones as the architecture says.
``precision`` float64 tells how much of a difference is rounding of the reference itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from tests.reference.activation_rounding import Product, exact_product
from tests.reference.checkpoint import FloatArray, read_checkpoint

Array = NDArray[Any]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(epsilon)) * weight


def softmax(x: Array) -> Array:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def log_softmax(x: Array) -> Array:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def rope_settings(config: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
    """Base frequency and scaling, from either place a config may keep them."""
    parameters = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or parameters
    theta = parameters.get("rope_theta", config.get("rope_theta", 10000.0))
    return float(theta), scaling


def rope_frequencies(config: Mapping[str, Any], head_size: int) -> NDArray[np.float64]:
    """Angle per position of each of the head_size / 2 pairs."""
    theta, scaling = rope_settings(config)
    frequencies = theta ** -(np.arange(0, head_size, 2, dtype=np.float64) / head_size)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return frequencies
    if kind == "linear":
        return frequencies / scaling["factor"]
    if kind == "llama3":
        # Wavelengths beyond the old context divided by low_freq_factor are stretched by factor, those below
        # the old context divided by high_freq_factor stay, and those between are blended.
        old_context = scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        wavelengths = 2 * np.pi / frequencies
        share_kept = np.clip((old_context / wavelengths - low) / (high - low), 0.0, 1.0)
        return share_kept * frequencies + (1 - share_kept) * frequencies / scaling["factor"]
    raise ValueError(f"rope type {kind!r}")


class ReferenceDecoder:
    """``logits(token_ids)`` gives one row for every position; ``weights`` carry their Hugging Face names.

    ``product`` multiplies rows with a weight matrix: kernels that round are modelled with it.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        weights: Mapping[str, FloatArray],
        precision: DTypeLike = np.float32,
        product: Product = exact_product,
    ) -> None:
        if config["model_type"] not in FAMILIES:
            raise ValueError(f"family {config['model_type']!r}")
        self.config = config
        self.weights = {name: values.astype(precision) for name, values in weights.items()}
        self.precision = precision
        self.product = product
        self.head_count = int(config["num_attention_heads"])
        self.kv_head_count = int(config["num_key_value_heads"])
        self.head_size = int(config.get("head_dim") or config["hidden_size"] // self.head_count)
        self.epsilon = float(config["rms_norm_eps"])
        self.frequencies = rope_frequencies(config, self.head_size)

    @classmethod
    def from_checkpoint(cls, folder: Path, precision: DTypeLike = np.float32) -> ReferenceDecoder:
        return cls(*read_checkpoint(folder), precision)

    def _linear(self, x: Array, name: str) -> Array:
        y = self.product(x, self.weights[name + ".weight"])
        bias = self.weights.get(name + ".bias")
        return y if bias is None else y + bias

    def _rotate(self, x: Array) -> Array:
        """Rotary embedding of [position, head, head_size]: element i pairs with element i + head_size / 2."""
        angles = np.arange(len(x), dtype=np.float64)[:, None] * self.frequencies[None, :]
        cosine = np.cos(angles).astype(self.precision)[:, None, :]
        sine = np.sin(angles).astype(self.precision)[:, None, :]
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)

    def _attention(self, x: Array, prefix: str) -> Array:
        length = len(x)
        queries = self._linear(x, prefix + "q_proj").reshape(length, self.head_count, self.head_size)
        keys = self._linear(x, prefix + "k_proj").reshape(length, self.kv_head_count, self.head_size)
        values = self._linear(x, prefix + "v_proj").reshape(length, self.kv_head_count, self.head_size)
        if self.config["model_type"] == "qwen3":
            queries = rms_norm(queries, self.weights[prefix + "q_norm.weight"], self.epsilon)
            keys = rms_norm(keys, self.weights[prefix + "k_norm.weight"], self.epsilon)
        queries, keys = self._rotate(queries), self._rotate(keys)
        future = np.triu(np.ones((length, length), dtype=bool), k=1)
        heads = []
        for head in range(self.head_count):
            kv_head = head * self.kv_head_count // self.head_count
            scores = queries[:, head] @ keys[:, kv_head].T / np.sqrt(x.dtype.type(self.head_size))
            scores[future] = -np.inf
            heads.append(softmax(scores) @ values[:, kv_head])
        return self._linear(np.concatenate(heads, axis=-1), prefix + "o_proj")

    def hidden(self, token_ids: Sequence[int]) -> Array:
        """Hidden rows after the final norm, [positions, hidden_size]."""
        x = self.weights["model.embed_tokens.weight"][list(token_ids)]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            normed = rms_norm(x, self.weights[prefix + "input_layernorm.weight"], self.epsilon)
            x = x + self._attention(normed, prefix + "self_attn.")
            normed = rms_norm(x, self.weights[prefix + "post_attention_layernorm.weight"], self.epsilon)
            gated = silu(self._linear(normed, prefix + "mlp.gate_proj")) * self._linear(normed, prefix + "mlp.up_proj")
            x = x + self._linear(gated, prefix + "mlp.down_proj")
        return rms_norm(x, self.weights["model.norm.weight"], self.epsilon)

    def logits(self, token_ids: Sequence[int]) -> Array:
        """Logits of every position, [positions, vocabulary]."""
        head = "model.embed_tokens" if self.config.get("tie_word_embeddings") else "lm_head"
        return self._linear(self.hidden(token_ids), head)

    def logprobs(self, token_ids: Sequence[int]) -> Array:
        return log_softmax(self.logits(token_ids))

    def greedy(self, prompt_ids: Sequence[int], token_count: int) -> list[int]:
        """The token_count most likely continuations, one after the other; end tokens do not stop it."""
        ids = list(prompt_ids)
        for _ in range(token_count):
            ids.append(int(np.argmax(self.logits(ids)[-1])))
        return ids[len(prompt_ids) :]
