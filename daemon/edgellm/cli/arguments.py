"""Command-line arguments: one-line usage errors, and the options that are settings by another spelling."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from edgellm.errors import UsageError
from edgellm.host.option_types import named_path

if TYPE_CHECKING:
    from edgellm.config import Flag, LoadedSettings


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError instead of printing a usage block."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} — see {self.prog} --help")

    def print_help(self, file: Any = None) -> None:
        # argparse passes over a help text that cannot be written; main says it.
        stream = sys.stdout if file is None else file
        stream.write(self.format_help())
        stream.flush()


@dataclass(frozen=True, slots=True)
class SettingOption:
    """An option whose value, type and bounds are those of a setting; ``path`` in ``[[models]]`` is one key."""

    spelling: str
    path: tuple[str, ...]
    metavar: str = ""


CREDENTIAL_OPTIONS = (
    SettingOption("--api-keys-file", ("server", "api_keys_file"), "FILE"),
    SettingOption("--tls-certificate-file", ("server", "tls_certificate_file"), "FILE"),
    SettingOption("--tls-key-file", ("server", "tls_key_file"), "FILE"),
)
SERVER_OPTIONS = (
    SettingOption("--host", ("server", "host"), "ADDRESS"),
    SettingOption("--port", ("server", "port"), "PORT"),
    *CREDENTIAL_OPTIONS,
    SettingOption("--insecure-no-keys", ("server", "insecure_no_keys")),
    SettingOption("--unknown-fields", ("server", "unknown_fields"), "refuse|ignore"),
    SettingOption("--cors-origins", ("server", "cors_origins"), "ORIGIN,…"),
    SettingOption("--allowed-hosts", ("server", "allowed_hosts"), "NAME,…"),
    SettingOption("--trusted-gateways", ("server", "trusted_gateways"), "CIDR,…"),
    SettingOption("--max-queued-requests", ("admission", "max_queued_requests"), "N"),
    SettingOption("--queue-timeout", ("admission", "queue_timeout_seconds"), "SECONDS"),
    SettingOption("--request-timeout", ("admission", "request_timeout_seconds"), "SECONDS"),
    SettingOption("--shutdown-drain", ("admission", "shutdown_drain_seconds"), "SECONDS"),
    SettingOption("--allowed-local-media-path", ("media", "local_root"), "FOLDER"),
    SettingOption("--allowed-media-hosts", ("media", "remote_hosts"), "HOST,…"),
    SettingOption("--model-memory-gb", ("residency", "model_memory_gb"), "GB"),
    SettingOption("--admin-socket", ("admin_socket",), "FILE"),
    SettingOption("--cache-dir", ("cache_dir",), "FOLDER"),
    SettingOption("--engine-cache-max-size-gb", ("engines", "cache_max_size_gb"), "GB"),
    SettingOption("--build-on-start", ("engines", "build_on_start")),
    SettingOption("--clear-engine-cache", ("engines", "clear_on_start")),
    SettingOption("--records", ("records", "file"), "FILE"),
    SettingOption("--log-level", ("log", "level"), "LEVEL"),
    SettingOption("--log-format", ("log", "format"), "text|json"),
)
ENGINE_OPTIONS = (SettingOption("--trusted-keys-file", ("engines", "trusted_keys_file"), "FILE"),)
MODEL_OPTIONS = (
    SettingOption("--served-model-name", ("name",), "NAME"),
    SettingOption("--runtime", ("runtime",), "auto|native|tensorrt"),
    SettingOption("--executor", ("executor",), "auto|fused|ggml"),
    SettingOption("--threads", ("threads",), "N"),
    SettingOption("--replicas", ("replicas",), "N"),
    SettingOption("--residency", ("residency",), "always|on_demand"),
    SettingOption("--idle-timeout", ("idle_timeout_seconds",), "SECONDS"),
    SettingOption("--required", ("required",)),
    SettingOption("--cpus", ("cpus",), "LIST"),
    SettingOption("--max-input-len", ("max_input_len",), "TOKENS"),
    SettingOption("--max-batch-size", ("max_batch_size",), "N"),
    SettingOption("--max-kv-cache-capacity", ("max_kv_cache_capacity",), "TOKENS"),
    SettingOption("--quantisation", ("quantisation",), "FORMAT"),
    SettingOption("--enable-in-flight-batching", ("enable_in_flight_batching",)),
    SettingOption("--enable-context-reuse", ("enable_context_reuse",)),
    SettingOption("--context-reuse-max-records", ("context_reuse_max_records",), "N"),
    SettingOption(
        "--context-reuse-recurrent-snapshot-pool-bytes", ("context_reuse_recurrent_snapshot_pool_bytes",), "BYTES"
    ),
    SettingOption(
        "--context-reuse-partial-kv-snapshot-pool-bytes", ("context_reuse_partial_kv_snapshot_pool_bytes",), "BYTES"
    ),
    SettingOption("--max-image-tokens", ("max_image_tokens",), "TOKENS"),
    SettingOption("--max-image-tokens-per-image", ("max_image_tokens_per_image",), "TOKENS"),
    SettingOption("--max-lora-rank", ("max_lora_rank",), "N"),
    SettingOption("--reduced-vocab-dir", ("reduced_vocab_dir",), "FOLDER"),
    SettingOption("--speculative-config", ("speculative_config",), "JSON"),
    SettingOption("--draft-top-k", ("draft_top_k",), "N"),
    SettingOption("--draft-step", ("draft_step",), "N"),
    SettingOption("--verify-tree-size", ("verify_tree_size",), "TOKENS"),
    SettingOption("--max-verify-tree-size", ("max_verify_tree_size",), "TOKENS"),
    SettingOption("--max-draft-tree-size", ("max_draft_tree_size",), "TOKENS"),
    SettingOption("--reasoning-parser", ("reasoning_parser",), "NAME"),
    SettingOption("--tool-call-parser", ("tool_call_parser",), "NAME"),
    SettingOption("--enable-auto-tool-choice", ("enable_auto_tool_choice",)),
)


def add_config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", type=named_path, help="configuration file (default: see edgellm config show)"
    )


def add_setting_options(group: argparse._ArgumentGroup, options: tuple[SettingOption, ...], section: Any) -> None:
    """Each option's help is its setting's description."""
    for option in options:
        field = _field_of(section, option.path)
        help_text = (field.description or "").replace("%", "%%").replace("`", "")
        if option.metavar:
            group.add_argument(option.spelling, metavar=option.metavar, help=help_text)
        else:
            group.add_argument(option.spelling, action=argparse.BooleanOptionalAction, help=help_text)


def load_from_arguments(
    namespace: argparse.Namespace,
    models: Sequence[str] = (),
    models_spelling: str = "",
    environ: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Settings from what was said on the command line, over environment, file and defaults.

    ``models`` are NAME=SOURCE texts that replace the configured models; ``environ`` is this process's own unless given.
    """
    from edgellm.config import Flag, ModelSettings, Settings, load_settings
    from edgellm.config.environment import parse_model_argument

    flags: dict[tuple[str, ...], Flag] = dict(_said(namespace, (*SERVER_OPTIONS, *ENGINE_OPTIONS), Settings))
    model_flags = {path[-1]: flag for path, flag in _said(namespace, MODEL_OPTIONS, ModelSettings).items()}
    if models:
        tables = [parse_model_argument(text, models_spelling) for text in models]
        flags["models",] = Flag(tables, models_spelling)
    return load_settings(
        file=getattr(namespace, "config", None),
        environ=os.environ if environ is None else environ,
        flags=flags,
        model_flags=model_flags,
    )


def _said(
    namespace: argparse.Namespace, options: tuple[SettingOption, ...], section: Any
) -> Mapping[tuple[str, ...], Flag]:
    from edgellm.config import Flag
    from edgellm.config.environment import parse_text

    said = {}
    for option in options:
        value = getattr(namespace, option.spelling.removeprefix("--").replace("-", "_"), None)
        if value is not None:
            annotation = _field_of(section, option.path).annotation
            parsed = parse_text(value, annotation, option.spelling) if isinstance(value, str) else value
            said[option.path] = Flag(parsed, option.spelling)
    return said


def _field_of(section: Any, path: tuple[str, ...]) -> Any:
    for name in path[:-1]:
        section = section.model_fields[name].annotation
    return section.model_fields[path[-1]]
