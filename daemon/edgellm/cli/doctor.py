"""``edgellm doctor``: what this machine can run and what it lacks, each line with its remedy. Loads no model."""

from __future__ import annotations

import argparse
import errno
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from edgellm.cli.arguments import add_config_option, load_from_arguments
from edgellm.errors import EdgeLLMError, RuntimeUnavailableError

EXIT_UNAVAILABLE = 69
RUNTIME = "runtime"
TENSORRT = "TensorRT"
_MEGABYTE_BYTES = 1_000_000
_FREE_BYTES_WANTED = 500 * _MEGABYTE_BYTES


@dataclass(frozen=True, slots=True)
class Finding:
    """``needed`` findings that are not right decide the exit code; the others are for information."""

    subject: str
    right: bool
    text: str
    needed: bool = True
    remedy: str = ""

    @property
    def lacks(self) -> bool:
        return self.needed and not self.right

    def __str__(self) -> str:
        mark = "ok" if self.right else "LACKING" if self.needed else "-"
        remedy = f" — {self.remedy}" if self.remedy else ""
        return f"{mark:<8} {self.subject:<26} {self.text}{remedy}"


def configure(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs")


def run(namespace: argparse.Namespace) -> int:
    findings = list(examine(namespace))
    lacking = [finding for finding in findings if finding.lacks]
    if namespace.json:
        report = {"right": not lacking, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        for finding in findings:
            print(finding)
    return exit_code_of(lacking)


def exit_code_of(lacking: Sequence[Finding]) -> int:
    """Tell a machine without its runtime, which no restart mends, from other lacks."""
    if any(finding.subject.startswith((RUNTIME, TENSORRT)) for finding in lacking):
        return RuntimeUnavailableError.exit_code
    return EXIT_UNAVAILABLE if lacking else 0


def examine(namespace: argparse.Namespace) -> Iterator[Finding]:
    yield Finding(
        "system", True, f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} CPUs usable"
    )
    yield _attempt("configuration", lambda: _configuration(namespace))
    yield from _certificate(namespace)
    yield _attempt("native runtime", _native_runtime)
    yield from _tensorrt()
    yield _attempt(RUNTIME, _runtime)
    yield from _containers()
    yield _attempt("cache", lambda: _cache(namespace))
    yield _attempt("model", lambda: _default_model(namespace), needed=False)


def _attempt(subject: str, check: Callable[[], str], *, needed: bool = True) -> Finding:
    try:
        return Finding(subject, True, check(), needed)
    except EdgeLLMError as error:
        return Finding(subject, False, str(error), needed)


def _configuration(namespace: argparse.Namespace) -> str:
    loaded = load_from_arguments(namespace)
    return str(loaded.file or "no file; defaults and environment")


def _certificate(namespace: argparse.Namespace) -> Iterator[Finding]:
    """Of a server with HTTPS, where whoever asks may read it."""
    from edgellm.service.pairing.daemon_side import authority_file
    from edgellm.service.tls import name_problem, validity_problems

    try:
        settings = load_from_arguments(namespace).settings
        certificate = settings.server.tls_certificate_file
    except EdgeLLMError:
        return  # it is said above
    if certificate is None or not os.access(certificate, os.R_OK):
        return
    problem = name_problem(certificate)
    yield Finding("certificate", problem is None, problem or f"{certificate} is for this machine's name", needed=False)
    for one in validity_problems(certificate, authority_file(settings)):
        yield Finding("certificate", False, one.text, needed=False)


def _native_runtime() -> str:
    from edgellm.runtime.modules import select_runtime

    selected = select_runtime("native")
    guided = (
        "guided decoding" if selected.guidance_library else "no guided decoding (the package llguidance is missing)"
    )
    return f"loads, with {guided}"


def _tensorrt() -> Iterator[Finding]:
    """Only a machine that is declared a Jetson needs it: others have the CPU."""
    from edgellm.engines.tensorrt.requirements import tensorrt_requirements
    from edgellm.runtime.modules import platform_facts

    facts = platform_facts()
    if facts.device is not None:
        yield Finding(f"{TENSORRT} device", True, f"{facts.device.path} declares {facts.device}")
    for requirement in tensorrt_requirements(facts):
        yield Finding(
            f"{TENSORRT} {requirement.name}",
            requirement.met,
            requirement.found,
            needed=facts.device is not None,
            remedy=requirement.remedy,
        )


def _runtime() -> str:
    from edgellm.runtime.modules import select_runtime

    selected = select_runtime()  # not "tensorrt": its complaint would name a setting that nobody made
    return f"auto takes {selected.kind} ({selected.reason})"


def _containers() -> Iterator[Finding]:
    """Where podman is to give containers a GPU: its device file must be one that this podman reads."""
    from edgellm.service.install import Mode, Target, installed_mode
    from edgellm.service.install.cdi import podman_version, refusal_of, specs_of

    target, subject = Target(), "GPU in containers"
    try:
        needed = target.has_gpu and installed_mode(target) is Mode.CONTAINER
        if podman_version(target) is None or not (needed or specs_of(target)):
            return
        refusal = refusal_of(target)
    except EdgeLLMError as error:
        yield Finding(subject, False, str(error), needed=False)
        return
    yield Finding(subject, not refusal, refusal or "podman reads the CDI spec", needed)


def _cache(namespace: argparse.Namespace) -> str:
    from edgellm.engines.cache_directory import engines_dir, models_dir
    from edgellm.engines.file_system import unreadable
    from edgellm.errors import CacheError

    folder = _cache_dir(namespace)
    existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise CacheError(f"{folder} cannot be written — set cache_dir or EDGELLM_CACHE_DIR to a folder of yours")
    for one in (engines_dir(folder), models_dir(folder)):
        if os.path.lexists(one) and not os.access(one, os.R_OK | os.W_OK | os.X_OK):
            raise unreadable(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), one)
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
