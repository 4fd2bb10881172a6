"""EngineMetadata: what the configurations in a TensorRT bundle say that its engines were compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgellm.engines.json_file import MAX_COUNT, Fields, read_object
from edgellm.engines.tensorrt.arguments import BUILDER_DEFAULTS
from edgellm.engines.tensorrt.speculation import DEFAULT_MAX_VERIFY_TREE_SIZE, NO_METHOD, CompiledSpeculation

CONFIG_FILE = "config.json"
BASE_CONFIG_FILE = "base_config.json"
DRAFT_CONFIG_FILE = "draft_config.json"
VISUAL_FOLDER = "visual"
AUDIO_FOLDER = "audio"
MAX_CONFIG_BYTES = 64 << 20  # the bindings of every tensor of a large checkpoint are in it


@dataclass(frozen=True, slots=True)
class EngineMetadata:
    """Limits are tokens and sequences; None where the engines state none (a bundle of speech alone).

    ``model_type`` is the family as the text engine names it, ``audio_model_type`` as the audio encoder does;
    its time steps are those of 10 ms that a sound may have.
    """

    model_type: str = ""
    edgellm_version: str = ""
    vocab_size: int | None = None
    layer_count: int = 0
    kv_head_count: int = 0
    head_size: int = 0
    context_length: int | None = None
    kv_cache_dtype: str = ""
    max_input_len: int | None = None
    max_batch_size: int | None = None
    max_kv_cache_capacity: int | None = None
    max_image_tokens: int | None = None
    max_image_tokens_per_image: int | None = None
    max_lora_rank: int = 0
    visual_model_type: str = ""
    audio_model_type: str = ""
    audio_min_time_steps: int = BUILDER_DEFAULTS["min_time_steps"]
    audio_max_time_steps: int = BUILDER_DEFAULTS["max_time_steps"]
    speculation: CompiledSpeculation = field(default_factory=CompiledSpeculation)

    @classmethod
    def load(cls, bundle_dir: Path) -> EngineMetadata:
        """Read the configurations of a complete bundle. Raises CheckpointError naming file and field."""
        base_path, draft = bundle_dir / CONFIG_FILE, None
        if not base_path.is_file() and (bundle_dir / BASE_CONFIG_FILE).is_file():
            base_path = bundle_dir / BASE_CONFIG_FILE
            draft = read_object(bundle_dir / DRAFT_CONFIG_FILE, MAX_CONFIG_BYTES)
        base = _optional_object(base_path)
        text, compiled = Fields(base_path, base), _builder_fields(base_path, base)
        visual_path = bundle_dir / VISUAL_FOLDER / CONFIG_FILE
        visual = _optional_object(visual_path)
        pictures = _builder_fields(visual_path, visual)
        audio_path = bundle_dir / AUDIO_FOLDER / CONFIG_FILE
        audio = _optional_object(audio_path)
        sounds = _builder_fields(audio_path, audio)
        return cls(
            model_type=text.text("model") or "",
            edgellm_version=text.text("edgellm_version") or "",
            vocab_size=_limit(text, "vocab_size"),
            layer_count=_size(text, "num_hidden_layers", 0),
            kv_head_count=_size(text, "num_key_value_heads", 0),
            head_size=_size(text, "head_dim", 0),
            context_length=_limit(text, "max_position_embeddings"),
            kv_cache_dtype=text.text("kv_cache_dtype") or "",
            max_input_len=_limit(compiled, "max_input_len"),
            max_batch_size=_limit(compiled, "max_batch_size"),
            max_kv_cache_capacity=_limit(compiled, "max_kv_cache_capacity"),
            max_image_tokens=_limit(pictures, "max_image_tokens"),
            max_image_tokens_per_image=_limit(pictures, "max_image_tokens_per_image"),
            max_lora_rank=_size(compiled, "max_lora_rank", 0),
            visual_model_type=Fields(visual_path, visual).text("model_type") or "",
            audio_model_type=Fields(audio_path, audio).text("model_type") or "",
            audio_min_time_steps=_limit(sounds, "min_time_steps") or BUILDER_DEFAULTS["min_time_steps"],
            audio_max_time_steps=_limit(sounds, "max_time_steps") or BUILDER_DEFAULTS["max_time_steps"],
            speculation=CompiledSpeculation()
            if draft is None
            else compiled_speculation(base, draft, base_path, bundle_dir / DRAFT_CONFIG_FILE),
        )


def compiled_speculation(
    base: Mapping[str, Any],
    draft: Mapping[str, Any],
    base_path: Path = Path(BASE_CONFIG_FILE),
    draft_path: Path = Path(DRAFT_CONFIG_FILE),
) -> CompiledSpeculation:
    """Give what a base and its draft were compiled for, out of their configurations."""
    base_fields, draft_fields = Fields(base_path, base), Fields(draft_path, draft)
    method = base_fields.text("spec_decode_type") or NO_METHOD
    proposals = Fields(draft_path, draft_fields.mapping(f"{method}_config"), f"{method}_config.")
    if not proposals.values and method == "jetspec":
        proposals = Fields(draft_path, draft_fields.mapping("dflash_config"), "dflash_config.")
    return CompiledSpeculation(
        method=method,
        max_verify_tree_size=_size(
            _builder_fields(base_path, base), "max_verify_tree_size", DEFAULT_MAX_VERIFY_TREE_SIZE
        ),
        max_draft_tree_size=_size(_builder_fields(draft_path, draft), "max_draft_tree_size", 0),
        block_size=_size(proposals, "block_size", _size(draft_fields, "block_size", 0)),
        replays_recurrent_state=_size(base_fields, "num_linear_attn_layers", 0) > 0
        and base_fields.text("recurrent_spec_verify_mode") == "replay",
    )


def _optional_object(path: Path) -> dict[str, Any]:
    return read_object(path, MAX_CONFIG_BYTES) if path.is_file() else {}


def _builder_fields(path: Path, config: Mapping[str, Any]) -> Fields:
    return Fields(path, Fields(path, config).mapping("builder_config"), "builder_config.")


def _limit(fields: Fields, name: str) -> int | None:
    return fields.count(name) if fields.has(name) else None


def _size(fields: Fields, name: str, default: int) -> int:
    """Read a size that may be 0, which the builder writes for what a model does not have."""
    value = fields.values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        fields.fail(name, "is not a number of 0 or more")
    return value
