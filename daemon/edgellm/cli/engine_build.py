"""``edgellm engine build``: makes what is missing; the only thing that builds on an appliance."""

from __future__ import annotations

import argparse

from edgellm.cli.arguments import MODEL_OPTIONS, add_setting_options
from edgellm.cli.engine_context import MODEL_HELP, EngineContext, entry_facts, print_json
from edgellm.cli.progress_line import ProgressLine

_NAMES = (
    *("runtime", "quantisation", "max_input_len", "max_batch_size", "max_kv_cache_capacity", "max_image_tokens"),
    *("max_image_tokens_per_image", "speculative_config", "draft_top_k", "draft_step", "verify_tree_size"),
    *("max_verify_tree_size", "max_draft_tree_size", "max_lora_rank", "reduced_vocab_dir"),
)
OPTIONS = tuple(option for option in MODEL_OPTIONS if option.path[-1] in _NAMES)


def configure(action: str, parser: argparse.ArgumentParser) -> None:
    from edgellm.config import ModelSettings

    parser.add_argument("models", metavar="MODEL", nargs="*", help=MODEL_HELP)
    parser.add_argument("--force", action="store_true", help="build anew even where an engine is there")
    parser.add_argument("--pin", action="store_true", help="keep what was built from being evicted")
    add_setting_options(parser.add_argument_group("every model built"), OPTIONS, ModelSettings)


def run(namespace: argparse.Namespace, context: EngineContext) -> int:
    facts = []
    with ProgressLine() as line:
        for _, builder, request in context.requests(line.show, download=True):
            with context.store.prepare(builder, request, force=namespace.force, on_progress=line.show) as lease:
                if namespace.pin:
                    context.store.pin(context.entry_in(lease.directory))
                built = entry_facts(context.entry_in(lease.directory))
            del built["loaded"]  # it was, by this command
            facts.append(built)
    if namespace.json:
        print_json(facts)
    else:
        for fact in facts:
            print(fact["folder"])
    return 0
