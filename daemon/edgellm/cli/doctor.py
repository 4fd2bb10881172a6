"""``edgellm doctor``: what this machine can run and what it lacks, each line with its remedy. Loads no model."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgellm.cli.arguments import add_config_option, load_from_arguments
from edgellm.errors import EdgeLLMError

EXIT_UNAVAILABLE = 69
_MEGABYTE_BYTES = 1_000_000
_FREE_BYTES_WANTED = 500 * _MEGABYTE_BYTES


@dataclass(frozen=True, slots=True)
class Finding:
    """``needed`` findings that are not right decide the exit code; the others are for information."""

    subject: str
    right: bool
    text: str
    needed: bool = True


def configure(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser)


def run(namespace: argparse.Namespace) -> int:
    findings = list(examine(namespace))
    for finding in findings:
        mark = "ok" if finding.right else "LACKING" if finding.needed else "-"
        print(f"{mark:<8} {finding.subject:<14} {finding.text}")
    return EXIT_UNAVAILABLE if any(finding.needed and not finding.right for finding in findings) else 0


def examine(namespace: argparse.Namespace) -> Iterator[Finding]:
    yield Finding(
        "system", True, f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} CPUs usable"
    )
    yield _attempt("configuration", lambda: _configuration(namespace))
    yield _attempt("native runtime", _native_runtime)
    yield _attempt("TensorRT", _tensorrt, needed=False)
    yield _attempt("cache", lambda: _cache(namespace))
    yield _attempt("model", lambda: _default_model(namespace), needed=False)


def _attempt(subject: str, check: Callable[[], str], *, needed: bool = True) -> Finding:
    try:
        return Finding(subject, True, check(), needed)
    except EdgeLLMError as error:
        return Finding(subject, False, str(error), needed)


def _configuration(namespace: argparse.Namespace) -> str:
    loaded = load_from_arguments(namespace)
    loaded.refuse_unknown_variables()
    return str(loaded.file or "no file; defaults and environment")


def _native_runtime() -> str:
    from edgellm.runtime.modules import select_runtime

    selected = select_runtime("native")
    guided = (
        "guided decoding" if selected.guidance_library else "no guided decoding (the package llguidance is missing)"
    )
    return f"loads, with {guided}"


def _tensorrt() -> str:
    from edgellm.errors import RuntimeUnavailableError
    from edgellm.runtime.modules import select_runtime

    selected = select_runtime()  # not "tensorrt": its complaint would name a setting that nobody made
    if selected.kind != "tensorrt":
        raise RuntimeUnavailableError(selected.reason)
    return selected.reason


def _cache(namespace: argparse.Namespace) -> str:
    from edgellm.errors import CacheError

    folder = _cache_dir(namespace)
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise CacheError(f"{folder} cannot be written — set cache_dir or EDGELLM_CACHE_DIR to a folder of yours")
    free = shutil.disk_usage(existing).free
    if free < _FREE_BYTES_WANTED:
        raise CacheError(f"{folder}: only {free // _MEGABYTE_BYTES} MB are free — make room there")
    return f"{folder}, {free // _MEGABYTE_BYTES} MB free"


def _default_model(namespace: argparse.Namespace) -> str:
    from edgellm.config.settings import DEFAULT_MODEL_SOURCE
    from edgellm.engines.cache_directory import models_dir
    from edgellm.engines.catalogue import locate
    from edgellm.errors import ModelSourceError

    if locate(DEFAULT_MODEL_SOURCE, models_dir(_cache_dir(namespace))) is None:
        raise ModelSourceError(f"{DEFAULT_MODEL_SOURCE} is not here — edgellm models add {DEFAULT_MODEL_SOURCE}")
    return f"{DEFAULT_MODEL_SOURCE} is here"


def _cache_dir(namespace: argparse.Namespace) -> Path:
    return load_from_arguments(namespace).settings.cache_dir
