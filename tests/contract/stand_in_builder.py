"""NVIDIA's engine builder without TensorRT: its own parser, plan, places and log, with a few bytes for each engine.

Run as a program with NVIDIA's package on the path, in the place of ``python -m experimental.builder``. A checkpoint
with weights gets the configurations, tokenizer and template that NVIDIA's own writers make of it; one that is a
configuration alone gets the facts that a runtime reads. Faults are asked for by ``STAND_IN_FAULT``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.contract.nvidia_verdicts import stub_tensorrt

# The weights of a checkpoint that is a configuration alone, for what takes no checkpoint without any.
PLACEHOLDER = "placeholder.safetensors"
FAULT_VARIABLE = "STAND_IN_FAULT"
ENGINE_BYTES = b"engine" * 1000
# What NVIDIA's writer calls the visual engine of a family, where that is not the name of the family.
VISUAL_TYPES = {"NemotronH_Nano_Omni_Reasoning_V3": "nemotron_omni_vision_encoder"}
# So that the log has its longest step on record before a fault; a test ends the process long before.
HANG_SECONDS = 3600
HELD_BYTES = 256 << 20


def main(arguments: list[str]) -> None:
    stub_tensorrt()
    from experimental.builder import cli
    from experimental.builder.core import builder

    cli.require_tensorrt = lambda: None
    cli.resolve_payload = lambda: SimpleNamespace(plugin="plugin.so")
    builder.load_plugin_library = lambda path: None
    builder.build_engine = build_engine
    cli._build_one = build_one(cli._build_one)
    cli.main(arguments)
    if os.environ.get(FAULT_VARIABLE, "").startswith("remove:"):
        (engine_dir(arguments) / os.environ[FAULT_VARIABLE].partition(":")[2]).unlink()


def engine_dir(arguments: list[str]) -> Path:
    return Path(arguments[arguments.index("--engine-dir") + 1])


def build_engine(args: Any, cfg: Any = None, bundle: Any = None, plugin_handle: Any = None) -> Any:
    """Take the place of the compiler: check the settings, write a file where the engine belongs."""
    from experimental.builder.core import builder, contracts

    args.validate()
    builder.logger.info("root_model_type=%s component=%s", bundle.root_model_type, args.component)
    builder.logger.info("Building serialized engine (this may take several minutes)...")
    suffer(args.component)
    path = Path(contracts.component_spec(args.resolved_component).output_path(args.engine_dir, args.resolved_spec_role))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(ENGINE_BYTES)
    builder.logger.info("Engine written to %s (%d bytes)", path, len(ENGINE_BYTES))
    identity = {"version": 1, "sources": {"component": {"files": [], "tensors": {}}}}
    return builder.BuildResult(str(path), ({"engine_name": "weight"},), "", identity)


def build_one(real: Any) -> Any:
    def with_or_without_weights(args: Any, bundle: Any, component: Any, plugin_handle: Any) -> str:
        if any(path.name != PLACEHOLDER for path in Path(args.model_dir).glob("*.safetensors")):
            return str(real(args, bundle, component, plugin_handle))
        return write_described(args, bundle, component)

    return with_or_without_weights


def write_described(args: Any, bundle: Any, component: Any) -> str:
    from experimental.builder import cli
    from experimental.builder.core import contracts

    build_args = cli._build_args(args, component.value)
    result = build_engine(build_args, bundle=bundle)
    config = runtime_config(build_args, bundle)
    config["checkpoint_identity"] = result.checkpoint_identity
    folder = Path(contracts.component_spec(component).output_dir(args.engine_dir))
    path = Path(contracts.component_spec(component).config_path(args.engine_dir, build_args.resolved_spec_role))
    if component.value in ("speaker-encoder", "speech-tokenizer-encoder"):
        # As NVIDIA's writer of this family names them, which its readiness check does not look for.
        path = folder / f"{component.value.replace('-', '_')}_config.json"
    path.write_text(json.dumps(config))
    if component.value in ("llm", "dllm") and not (folder / "tokenizer.json").is_file():
        (folder / "tokenizer.json").write_text("{}")
    return str(result.engine_path)


def runtime_config(args: Any, bundle: Any) -> dict[str, Any]:
    if args.component == "visual":
        names = ("min_image_tokens", "max_image_tokens", "max_image_tokens_per_image")
        model_type = VISUAL_TYPES.get(bundle.root_model_type, bundle.root_model_type)
        return {"model_type": model_type, "builder_config": {name: getattr(args, name) for name in names}}
    if args.component not in ("llm", "dllm", "talker", "code-predictor"):
        return {"model_type": f"{bundle.root_model_type}_{args.component}"}
    role = args.resolved_spec_role.value
    compiled = {
        "max_input_len": args.max_input_len,
        "max_batch_size": args.max_batch_size,
        "max_kv_cache_capacity": args.max_kv_cache_capacity,
        "max_lora_rank": args.max_lora_rank,
    }
    config = {
        "model": bundle.root_model_type,
        "engine_role": "llm" if role == "none" else role,
        "spec_decode_type": args.spec_type,
        "edgellm_version": "0.11.0",
        "vocab_size": 1000,
        "max_position_embeddings": 32768,
        "kv_cache_dtype": "fp16",
        "builder_config": compiled,
    }
    if role == "base":
        compiled["max_verify_tree_size"] = args.max_verify_tree_size
    if role == "draft":
        compiled["max_draft_tree_size"] = args.max_draft_tree_size
    if args.spec_type in ("dflash", "jetspec", "dspark"):
        config[f"{args.spec_type}_config"] = {"block_size": 8}
    return config


def suffer(component: str) -> None:
    """Do what ``STAND_IN_FAULT`` says, ``KIND`` or ``KIND:COMPONENT``."""
    kind, _, only = os.environ.get(FAULT_VARIABLE, "").partition(":")
    if only not in ("", component):
        return
    if kind == "raise":
        raise RuntimeError("build_serialized_network returned None")
    if kind == "memory":
        raise RuntimeError("CUDA runtime error in cudaMalloc: out of memory")
    if kind in ("kill", "crash"):
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSEGV)
    if kind == "hold":
        held = bytearray(HELD_BYTES)
        held[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(held[:: os.sysconf("SC_PAGE_SIZE")])
    if kind in ("hang", "hold"):
        sys.stdout.flush()
        time.sleep(HANG_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
