"""Tiny random vision checkpoints in Hugging Face form: a SigLIP tower, pixel shuffle, a linear layer, a llama decoder.

``write_vision_checkpoint(folder, VISION_VARIANTS["smolvlm"])`` gives a directory like one from a hub. The weights are
random but scaled so that every tensor matters, and that an image moves the answer as text does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.models.safetensors_writer import FloatArray, write_sharded
from tests.models.tiny_checkpoints import STORAGE_CONFIG_NAMES, TinyModel, config_json, make_weights
from tests.models.tiny_tokenizer import END_OF_TEXT, TURN_END, TURN_START, TinyTokenizer

AROUND_IMAGE = "<fake_token_around_image>"
IMAGE = "<image>"
GLOBAL_IMAGE = "<global-img>"
TILE_NAMES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5))

# Content comes as parts alone, as the family's templates have it; a line break after a turn, none after an image.
TEMPLATE = (
    "{{ '<|im_start|>' }}"
    "{%- for message in messages -%}"
    "{{ message.role ~ ':' }}"
    "{%- if message.content[0].type != 'image' %}{{ ' ' }}{% endif -%}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}{{ '<image>' }}{% endif -%}"
    "{%- endfor -%}"
    "{{ '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'assistant:' }}{%- endif -%}"
)


@dataclass(frozen=True, slots=True)
class VisionTokenizer(TinyTokenizer):
    """``names_tiles``: the names of tiles are tokens; else they are text, as in the family's first models."""

    names_tiles: bool = True

    @property
    def special_tokens(self) -> tuple[str, ...]:
        names = (GLOBAL_IMAGE, *TILE_NAMES) if self.names_tiles else ()
        return (END_OF_TEXT, TURN_START, TURN_END, AROUND_IMAGE, IMAGE, *names)


_TOKENIZER = VisionTokenizer(pre_tokenizer="smollm", chat_template=TEMPLATE)


@dataclass(frozen=True, slots=True)
class TinyVisionModel:
    """``overrides`` go into the file of that name last: a value of None removes a field."""

    model_type: str = "smolvlm"
    decoder: TinyModel = field(default_factory=lambda: TinyModel(tokenizer=_TOKENIZER, tied=False, context_length=2048))
    image_size: int = 32
    patch_size: int = 8
    hidden_size: int = 48
    intermediate_size: int = 80
    layer_count: int = 2
    head_count: int = 3
    scale_factor: int = 2
    longest_edge: int = 128
    splits: bool = True
    norm_epsilon: float = 1e-6
    seed: int = 100
    nested_processor: bool = False
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def patch_count(self) -> int:
        return (self.image_size // self.patch_size) ** 2

    @property
    def tokens_per_tile(self) -> int:
        return self.patch_count // self.scale_factor**2


VISION_VARIANTS: Mapping[str, TinyVisionModel] = {
    "smolvlm": TinyVisionModel(),
    # Sizes that are no multiples of anything: rows of 6 x 6 patches, names of tiles that are text, a tied output.
    "idefics3": TinyVisionModel(
        model_type="idefics3",
        decoder=TinyModel(
            tokenizer=replace(_TOKENIZER, names_tiles=False), context_length=2048, hidden_size=96, head_size=24, seed=1
        ),
        image_size=30,
        patch_size=5,
        hidden_size=36,
        intermediate_size=52,
        head_count=2,
        scale_factor=3,
        longest_edge=60,
        seed=101,
        nested_processor=True,
    ),
    "smolvlm-whole": TinyVisionModel(splits=False, longest_edge=64, seed=102),
}


def vision_config_json(model: TinyVisionModel) -> dict[str, Any]:
    decoder = model.decoder
    text = {key: value for key, value in config_json(decoder).items() if key != "transformers_version"}
    config: dict[str, Any] = {
        "architectures": ["SmolVLMForConditionalGeneration"],
        "model_type": model.model_type,
        "image_token_id": decoder.tokenizer.id_of(IMAGE),
        "scale_factor": model.scale_factor,
        "tie_word_embeddings": decoder.tied,
        "torch_dtype": STORAGE_CONFIG_NAMES[decoder.dtype],
        "vocab_size": decoder.vocab_size,
        "text_config": text,
        "vision_config": {
            "model_type": f"{model.model_type}_vision",
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": model.hidden_size,
            "intermediate_size": model.intermediate_size,
            "num_hidden_layers": model.layer_count,
            "num_attention_heads": model.head_count,
            "num_channels": 3,
            "image_size": model.image_size,
            "patch_size": model.patch_size,
            "layer_norm_eps": model.norm_epsilon,
        },
        "transformers_version": "4.46.0",
    }
    return _overridden(config, model.overrides.get("config.json", {}))


def processor_json(model: TinyVisionModel) -> dict[str, Any]:
    return {
        "image_processor_type": "Idefics3ImageProcessor",
        "do_convert_rgb": True,
        "do_image_splitting": model.splits,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.4, 0.6],
        "image_std": [0.5, 0.25, 0.3],
        "max_image_size": {"longest_edge": model.image_size},
        "resample": 1,
        "rescale_factor": 1 / 255,
        "size": {"longest_edge": model.longest_edge},
    }


def make_vision_weights(model: TinyVisionModel) -> dict[str, FloatArray]:
    """Weights by their Hugging Face names. The same seed gives the same ones."""
    random = np.random.Generator(np.random.PCG64(model.seed))
    weights: dict[str, FloatArray] = {}

    def linear(name: str, outputs: int, inputs: int, gain: float = 1.0) -> None:
        matrix = random.standard_normal((outputs, inputs)) * (gain / np.sqrt(inputs))
        weights[f"{name}.weight"] = matrix.astype(np.float32)
        weights[f"{name}.bias"] = (0.3 * random.standard_normal(outputs)).astype(np.float32)

    def norm(name: str) -> None:
        weights[f"{name}.weight"] = (1.0 + 0.2 * random.standard_normal(hidden)).astype(np.float32)
        weights[f"{name}.bias"] = (0.2 * random.standard_normal(hidden)).astype(np.float32)

    hidden, tower, patch = model.hidden_size, "model.vision_model.", model.patch_size
    linear(tower + "embeddings.patch_embedding", hidden, 3 * patch * patch, 2.0)
    patches = weights[tower + "embeddings.patch_embedding.weight"]
    weights[tower + "embeddings.patch_embedding.weight"] = patches.reshape(hidden, 3, patch, patch)
    positions = random.standard_normal((model.patch_count, hidden)).astype(np.float32)
    weights[tower + "embeddings.position_embedding.weight"] = positions
    for layer in range(model.layer_count):
        prefix = f"{tower}encoder.layers.{layer}."
        norm(prefix + "layer_norm1")
        for name in ("q", "k"):
            linear(f"{prefix}self_attn.{name}_proj", hidden, hidden, 1.5)
        linear(prefix + "self_attn.v_proj", hidden, hidden)
        linear(prefix + "self_attn.out_proj", hidden, hidden)
        norm(prefix + "layer_norm2")
        linear(prefix + "mlp.fc1", model.intermediate_size, hidden, 1.2)
        linear(prefix + "mlp.fc2", hidden, model.intermediate_size, 1.2)
    norm(tower + "post_layernorm")
    shuffled = hidden * model.scale_factor**2
    connector = random.standard_normal((model.decoder.hidden_size, shuffled)) * (3.0 / np.sqrt(shuffled))
    weights["model.connector.modality_projection.proj.weight"] = connector.astype(np.float32)
    decoder = make_weights(model.decoder)
    weights |= {
        name if name == "lm_head.weight" else name.replace("model.", "model.text_model.", 1): values
        for name, values in decoder.items()
    }
    return weights


def write_vision_checkpoint(folder: Path, model: TinyVisionModel) -> Path:
    """Write the checkpoint directory and return it. Existing files of the same names are overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    processor = {"image_seq_len": model.tokens_per_tile, "processor_class": "Idefics3Processor"}
    files = {
        "config.json": vision_config_json(model),
        "processor_config.json": processor,
        "preprocessor_config.json": _overridden(
            processor_json(model), model.overrides.get("preprocessor_config.json", {})
        ),
        "generation_config.json": {"eos_token_id": model.decoder.tokenizer.id_of(TURN_END)},
    }
    if model.nested_processor:
        processor["image_processor"] = files.pop("preprocessor_config.json")
    files["processor_config.json"] = _overridden(processor, model.overrides.get("processor_config.json", {}))
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2))
    model.decoder.tokenizer.write(folder, model.decoder.context_length)
    write_sharded(folder, make_vision_weights(model), model.decoder.dtype, model.decoder.shard_count)
    return folder


def _overridden(values: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``overrides`` by name, a name inside an object after a dot."""
    for name, value in overrides.items():
        owner = values
        *parents, last = name.split(".")
        for parent in parents:
            owner = owner[parent]
        if value is None:
            owner.pop(last, None)
        else:
            owner[last] = value
    return values
