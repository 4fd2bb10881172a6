"""A vision model of the Idefics3 family in numpy: slow, short, and easy to check by eye.

Everything between an image and the decoder's rows is done here anew, straight from how the architecture is described:
sizes, tiles, normalisation, the tower one tile at a time, pixel shuffle, the connector, and the prompt's text around
rows. Only the resampling filter is Pillow's, as it is for the published processor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image
from tests.reference.checkpoint import FloatArray, read_checkpoint
from tests.reference.decoder import ReferenceDecoder, softmax
from tokenizers import Tokenizer

Array = NDArray[Any]
Pixels = NDArray[np.uint8]

IMAGE_TEXT = "<image>"


def layer_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + x.dtype.type(epsilon)) * weight + bias


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class ReferenceVisionModel:
    """``logits(text, images)``: the text has ``<image>`` where each image is."""

    def __init__(self, folder: Path, precision: DTypeLike = np.float32, matrices: DTypeLike = np.float32) -> None:
        """``matrices`` is what the tower's matrices are rounded to before they are used."""
        self.config, weights = read_checkpoint(folder)
        preprocessor = folder / "preprocessor_config.json"
        self.processor: dict[str, Any] = (
            json.loads(preprocessor.read_text())
            if preprocessor.exists()
            else json.loads((folder / "processor_config.json").read_text())["image_processor"]
        )
        self.vision = self.config["vision_config"]
        self.precision = precision
        self.weights = {
            name: self._rounded(name, values, matrices).astype(precision)
            for name, values in weights.items()
            if name.startswith(("model.vision_model.", "model.connector."))
        }
        text = {**self.config["text_config"], "tie_word_embeddings": self.config["tie_word_embeddings"]}
        decoder = {name.replace("model.text_model.", "model."): values for name, values in weights.items()}
        self.decoder = RowDecoder(
            text, {name: values for name, values in decoder.items() if name not in self.weights}, precision
        )
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    @staticmethod
    def _rounded(name: str, values: FloatArray, matrices: DTypeLike) -> FloatArray:
        is_matrix = values.ndim > 1 and "position_embedding" not in name
        return values.astype(matrices).astype(np.float32) if is_matrix else values

    def tiles(self, image: Pixels) -> tuple[int, int, list[Pixels]]:
        """Rows and columns of tiles (0 for an image that stays whole), and the tiles, the whole image last."""
        size, edge = self.processor["max_image_size"]["longest_edge"], self.processor["size"]["longest_edge"]
        picture = Image.fromarray(image)
        width, height = picture.size
        if width >= height:
            new_height = int(edge / (width / height))
            width, height = edge, new_height + new_height % 2
        else:
            new_width = int(edge * (width / height))
            width, height = new_width + new_width % 2, edge
        width, height = max(width, 1), max(height, 1)
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
        whole = np.asarray(picture.resize((size, size), Image.Resampling.LANCZOS))
        if not self.processor["do_image_splitting"]:
            return 0, 0, [whole]
        ratio = width / height
        if width >= height:
            width = math.ceil(width / size) * size
            height = math.ceil(int(width / ratio) / size) * size
        else:
            height = math.ceil(height / size) * size
            width = math.ceil(int(height * ratio) / size) * size
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
        if (width, height) == (size, size):
            return 0, 0, [np.asarray(picture)]
        rows, columns = height // size, width // size
        boxes = [(c * size, r * size, (c + 1) * size, (r + 1) * size) for r in range(rows) for c in range(columns)]
        cut = [np.asarray(picture.crop(box)) for box in boxes]
        return rows, columns, [*cut, np.asarray(picture.resize((size, size), Image.Resampling.LANCZOS))]

    def encode(self, tile: Pixels) -> Array:
        """The decoder's rows of one tile."""
        mean, deviation = np.array(self.processor["image_mean"]), np.array(self.processor["image_std"])
        values = ((tile * self.processor["rescale_factor"] - mean) / deviation).astype(self.precision)
        patch, side = self.vision["patch_size"], self.vision["image_size"] // self.vision["patch_size"]
        tower = "model.vision_model."
        kernel = self.weights[tower + "embeddings.patch_embedding.weight"]
        rows = np.empty((side * side, self.vision["hidden_size"]), self.precision)
        for line in range(side):
            for column in range(side):
                square = values[line * patch : (line + 1) * patch, column * patch : (column + 1) * patch]
                rows[line * side + column] = np.einsum("ocyx,yxc->o", kernel, square)
        rows += self.weights[tower + "embeddings.patch_embedding.bias"]
        rows += self.weights[tower + "embeddings.position_embedding.weight"]
        for layer in range(self.vision["num_hidden_layers"]):
            prefix = f"{tower}encoder.layers.{layer}."
            rows = rows + self._attention(self._norm(rows, prefix + "layer_norm1"), prefix + "self_attn.")
            inner = gelu_tanh(self._linear(self._norm(rows, prefix + "layer_norm2"), prefix + "mlp.fc1"))
            rows = rows + self._linear(inner, prefix + "mlp.fc2")
        rows = self._norm(rows, tower + "post_layernorm")
        scale = self.config["scale_factor"]
        blocks = rows.reshape(side // scale, scale, side // scale, scale, -1).swapaxes(1, 2)
        shuffled = blocks.reshape((side // scale) ** 2, -1)
        return shuffled @ self.weights["model.connector.modality_projection.proj.weight"].T

    def prompt(self, text: str, images: Sequence[Pixels]) -> tuple[list[int], Array]:
        """Token ids with one for every row, and the rows that take the places of image tokens."""
        rows: list[Array] = []
        pieces = text.split(IMAGE_TEXT)
        assert len(pieces) == len(images) + 1
        written = pieces[0]
        for image, after in zip(images, pieces[1:], strict=True):
            line_count, column_count, tiles = self.tiles(image)
            encoded = [self.encode(tile) for tile in tiles]
            rows += encoded
            marks = IMAGE_TEXT * len(encoded[0])
            for line in range(line_count):
                for column in range(column_count):
                    written += f"<fake_token_around_image><row_{line + 1}_col_{column + 1}>{marks}"
                written += "\n"
            if line_count:
                written += "\n"
            written += f"<fake_token_around_image><global-img>{marks}<fake_token_around_image>{after}"
        ids: list[int] = self.tokenizer.encode(written, add_special_tokens=False).ids
        width = self.decoder.config["hidden_size"]
        return ids, np.concatenate(rows) if rows else np.empty((0, width), self.precision)

    def logits(self, text: str, images: Sequence[Pixels]) -> Array:
        ids, rows = self.prompt(text, images)
        return self.decoder.logits_with_rows(ids, self.config["image_token_id"], rows)

    def greedy(self, text: str, images: Sequence[Pixels], token_count: int) -> list[int]:
        ids, rows = self.prompt(text, images)
        answer: list[int] = []
        for _ in range(token_count):
            logits = self.decoder.logits_with_rows([*ids, *answer], self.config["image_token_id"], rows)
            answer.append(int(np.argmax(logits[-1])))
        return answer

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _norm(self, x: Array, name: str) -> Array:
        epsilon = self.vision["layer_norm_eps"]
        return layer_norm(x, self.weights[name + ".weight"], self.weights[name + ".bias"], epsilon)

    def _attention(self, x: Array, prefix: str) -> Array:
        heads = self.vision["num_attention_heads"]
        size = x.shape[1] // heads
        queries, keys, values = (
            self._linear(x, f"{prefix}{name}_proj").reshape(len(x), heads, size) for name in ("q", "k", "v")
        )
        mixed = [
            softmax(queries[:, head] @ keys[:, head].T / np.sqrt(x.dtype.type(size))) @ values[:, head]
            for head in range(heads)
        ]
        return self._linear(np.concatenate(mixed, axis=-1), prefix + "out_proj")


class RowDecoder(ReferenceDecoder):
    """The reference decoder, which may be given rows in the places of one token."""

    def logits_with_rows(self, token_ids: Sequence[int], placeholder: int, rows: Array) -> Array:
        embedding = "model.embed_tokens.weight"
        table = self.weights[embedding]
        places = [index for index, token_id in enumerate(token_ids) if token_id == placeholder]
        assert len(places) == len(rows)
        ids = np.array(token_ids)
        # Rows become entries of the table for as long as they are looked up.
        ids[places] = len(table) + np.arange(len(rows))
        head = table if self.config.get("tie_word_embeddings") else self.weights["lm_head.weight"]
        self.weights[embedding] = np.concatenate([table, rows.astype(table.dtype)])
        try:
            hidden = self.hidden([int(token_id) for token_id in ids])
        finally:
            self.weights[embedding] = table
        return np.asarray(hidden @ head.T)
