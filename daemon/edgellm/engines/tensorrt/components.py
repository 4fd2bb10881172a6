"""Components: the engines that a checkpoint of each family is made of, in the order in which they are built.

Most families have a fixed set. Some checkpoints hold less than their family may, which their configuration shows.
A family that is not listed may still be one that a later builder knows; what it builds is then taken from its report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from edgellm.engines.json_file import Fields, read_object

BUILD_ORDER = (
    "dllm",
    "llm",
    "visual",
    "audio",
    "rnnt",
    "talker",
    "code_predictor",
    "code2wav",
    "speaker_encoder",
    "speech_tokenizer_encoder",
    "action",
    "und_prefill",
    "gen",
    "vae_encoder",
)
TEXT_COMPONENTS = frozenset({"llm", "dllm"})
SPEECH_COMPONENTS = frozenset({"talker", "code_predictor", "code2wav"})

CONFIG_FILE = "config.json"
_WEIGHT_INDEX_FILE = "model.safetensors.index.json"
_MUSE_VISUAL_WEIGHTS = ("model.vision_tower.", "model.vision_adapter.", "model.vision_projection")
_POLICY = ("llm", "visual", "und_prefill", "gen", "vae_encoder")
_OMNI = ("llm", "visual", "audio", "talker", "code_predictor", "code2wav")
_TTS = ("talker", "code_predictor", "code2wav", "speaker_encoder", "speech_tokenizer_encoder")

_MODEL_TYPES_BY_COMPONENTS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("llm",): (
        "cosmos3_edge_text",
        "gemma4_assistant",
        "gemma4_text",
        "gemma4_unified_assistant",
        "gemma4_unified_text",
        "hunyuan_v1_dense",
        "llama",
        "mistral",
        "muse_glimmer_assistant",
        "muse_glimmer_text",
        "nemotron_h",
        "qwen2",
        "qwen3",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_asr_thinker",
        "qwen3_moe",
        "qwen3_omni_moe_text",
        "qwen3_omni_next_text",
        "qwen3_omni_next_text_moe",
        "qwen3_omni_text",
    ),
    ("llm", "visual"): (
        "NemotronH_Nano_VL_V2",
        "internvl",
        "internvl_chat",
        "muse_glimmer",
        "phi4_multimodal",
        "phi4mm",
        "qwen2_5_vl",
        "qwen2_vl",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_vl",
    ),
    ("llm", "audio"): ("qwen3_asr",),
    ("llm", "visual", "audio"): (
        "NemotronH_Nano_Omni_Reasoning_V3",
        "gemma4",
        "gemma4_unified",
        "qwen3_omni_moe_thinker",
        "qwen3_omni_thinker",
    ),
    _OMNI: ("qwen3_omni", "qwen3_omni_moe", "qwen3_omni_next"),
    _POLICY: ("cosmos3", "cosmos3_edge", "cosmos3_omni"),
    _TTS: ("qwen3_tts",),
    ("dllm",): ("diffusion_gemma_text",),
    ("dllm", "visual"): ("diffusion_gemma", "diffusiongemma"),
}
_COMPONENTS_BY_MODEL_TYPE = {
    model_type: components
    for components, model_types in _MODEL_TYPES_BY_COMPONENTS.items()
    for model_type in model_types
}


def checkpoint_components(folder: Path) -> tuple[str, ...] | None:
    """Give the components of the checkpoint, None for a family that is not listed. Raises CheckpointError."""
    path = folder / CONFIG_FILE
    config = Fields(path, read_object(path))
    model_type = config.text("model_type")
    if not model_type:
        config.fail("model_type", "is missing")
    # The thinker of this family is published alone, as text, though its type is listed with encoders.
    if model_type == "qwen3_omni_next_thinker":
        return ("llm",)
    components = _COMPONENTS_BY_MODEL_TYPE.get(model_type)
    if components is None:
        return None
    absent = next((rule for prefix, rule in _ABSENT_BY_FAMILY if model_type.startswith(prefix)), None)
    missing = absent(folder, config) if absent else frozenset()
    return tuple(name for name in components if name not in missing)


def in_build_order(components: Iterable[str]) -> tuple[str, ...]:
    """Order known names as they are built, and keep unknown ones behind."""
    names = tuple(components)
    return (*(name for name in BUILD_ORDER if name in names), *(name for name in names if name not in BUILD_ORDER))


def _encoders(_folder: Path, config: Fields) -> frozenset[str]:
    sections = {"visual": "vision_config", "audio": "audio_config"}
    return frozenset(name for name, section in sections.items() if not _has_section(config, section))


def _muse_glimmer(folder: Path, config: Fields) -> frozenset[str]:
    index = folder / _WEIGHT_INDEX_FILE
    if not _has_section(config, "vision_config"):
        return frozenset({"visual"})
    if not index.is_file():
        return frozenset()
    names = tuple(Fields(index, read_object(index)).mapping("weight_map"))
    complete = all(any(name.startswith(prefix) for name in names) for prefix in _MUSE_VISUAL_WEIGHTS)
    return frozenset() if complete else frozenset({"visual"})


def _qwen3_vl(_folder: Path, config: Fields) -> frozenset[str]:
    architectures = config.values.get("architectures")
    vision_alone = isinstance(architectures, list) and "Qwen3VLVisionModel" in architectures
    return frozenset({"llm"}) if vision_alone else frozenset()


def _qwen3_tts(folder: Path, config: Fields) -> frozenset[str]:
    """Voices can be cloned with base checkpoints only, which bring a speaker encoder."""
    if not _has_section(config, "speaker_encoder_config"):
        return frozenset({"speaker_encoder", "speech_tokenizer_encoder"})
    path = folder / "speech_tokenizer" / CONFIG_FILE
    speech = Fields(path, read_object(path) if path.is_file() else {})
    return frozenset() if _has_section(speech, "encoder_config") else frozenset({"speech_tokenizer_encoder"})


def _cosmos3(folder: Path, config: Fields) -> frozenset[str]:
    absent = set()
    if not _has_section(config, "text_config") and config.text("model_type") != "cosmos3_edge_text":
        absent.add("llm")
    if not _has_section(config, "vision_config"):
        absent.add("visual")
    if not (folder / "transformer" / CONFIG_FILE).is_file():
        absent |= {"und_prefill", "gen"}
    if not (folder / "vae" / CONFIG_FILE).is_file():
        absent.add("vae_encoder")
    return frozenset(absent)


def _has_section(config: Fields, name: str) -> bool:
    return isinstance(config.values.get(name), dict)


_ABSENT_BY_FAMILY: tuple[tuple[str, Callable[[Path, Fields], frozenset[str]]], ...] = (
    ("gemma4", _encoders),
    ("diffusion", _encoders),
    ("muse_glimmer", _muse_glimmer),
    ("qwen3_vl", _qwen3_vl),
    ("qwen3_tts", _qwen3_tts),
    ("cosmos3", _cosmos3),
)
