"""What NVIDIA's own Python code says about our inputs. Run as a program, with its package on the path.

Reads ``{"question": name, "cases": [...]}`` from standard input and writes one verdict a case, in order.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_SECONDS = 300

Case = dict[str, Any]


def ask(site: Path, question: str, cases: Sequence[Case], **environment: str) -> list[Any]:
    """Give NVIDIA's verdicts, from a process of its own: its packages must not become importable in this one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.nvidia_verdicts"],
        input=json.dumps({"question": question, "cases": list(cases)}),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, f"{question} ended with {done.returncode}:\n{done.stderr}"
    verdicts = json.loads(done.stdout.splitlines()[-1])  # a library may have had something to say before
    assert len(verdicts) == len(cases)
    return list(verdicts)


def speculative_shape(case: Case) -> Any:
    """``base`` and ``draft`` are configurations of engines, ``launch`` the arguments; a refusal is its text."""
    from experimental.server.runtime.engine import _resolve_spec_decode_runtime_options

    for name in ("base", "draft"):
        _write_once(Path(f"{name}_config.json"), json.dumps(case[name]))
    try:
        shape = _resolve_spec_decode_runtime_options(".", **case["launch"])
    except ValueError as error:
        return str(error)
    return [shape.top_k, shape.step, shape.verify_size, shape.dflash_block_size]


def builder_arguments(case: Case) -> Any:
    """``argv`` as the builder's own parser takes it; a refusal is its text."""
    from experimental.builder.cli import _parser

    complaint = io.StringIO()
    with contextlib.redirect_stderr(complaint):
        try:
            return vars(_parser().parse_args(case["argv"]))
        except SystemExit:
            return complaint.getvalue()


def build_plan(case: Case) -> Any:
    """The engines that ``argv`` builds, each with its settings checked; a refusal is its text."""
    stub_tensorrt()
    from experimental.builder import cli

    try:
        args = cli._parser().parse_args(case["argv"])
        bundle, components = cli._resolve_build_selection(args)
        plan = cli._build_plan(args, bundle, components)
        for _, arguments, _, component in plan:
            cli._build_args(arguments, component.value).validate()
    except ValueError as error:
        return str(error)
    return [label for label, *_ in plan]


def profile_limits(case: Case) -> Any:
    """``limits`` as the builder checks them before it starts; "" when they are right."""
    from experimental.builder.core.contracts import ProfileLimits

    try:
        ProfileLimits(**case["limits"]).validate()
    except ValueError as error:
        return str(error)
    return ""


def components(case: Case) -> Any:
    """The components of the checkpoint in ``model_dir``, in the order of their builds; a refusal is its text."""
    stub_tensorrt()  # one family imports it to describe itself
    from experimental.builder.core import contracts
    from experimental.builder.core.bundle import BundleConfig

    try:
        bundle = BundleConfig.from_pretrained(case["model_dir"])
        found = contracts.resolve_components(bundle.root_model_type, ("all",), available=bundle.components)
    except (OSError, TypeError, ValueError) as error:
        return str(error)
    return [component.value for component in found]


def root_model_types(_case: Case) -> Any:
    from experimental.builder.models.registry import registered_root_types

    return sorted(registered_root_types())


def is_ready(case: Case) -> Any:
    """Whether the server would take ``bundle_dir`` for the checkpoint and ``options``."""
    from experimental.server.runtime.engine_build import BuildOptions, _is_ready

    return _is_ready(case["model_dir"], case["bundle_dir"], BuildOptions(**case["options"]))


def layout(case: Case) -> Any:
    """What the server sees in ``bundle_dir``, its folders relative to it."""
    from experimental.server.runtime.engine_layout import inspect_bundle

    seen = inspect_bundle(case["bundle_dir"])
    folders = {
        name: None if value is None else os.path.relpath(value, seen.root)
        for name, value in vars(seen).items()
        if name.endswith("_dir")
    }
    return {"engine_type": seen.engine_type.value, "has_speech": seen.has_speech, **folders}


def in_flight_refusal(case: Case) -> Any:
    from experimental.server.runtime.engine import ifb_unsupported_reason
    from experimental.server.runtime.engine_layout import inspect_bundle

    return ifb_unsupported_reason(inspect_bundle(case["bundle_dir"]), case["model_type"])


def payload(case: Case) -> Any:
    """The variant that the loader selects in ``manifest`` for ``platform``; None for none, text for a bad manifest."""
    from tensorrt_edgellm._native import NativeManifestError, NativeSelectionError
    from tensorrt_edgellm._native.contract import validate_manifest
    from tensorrt_edgellm._native.detect import DetectedPlatform
    from tensorrt_edgellm._native.select import select_variant

    try:
        manifest = validate_manifest(case["manifest"])
        return select_variant(DetectedPlatform(**case["platform"]), manifest)["variant_id"]
    except (NativeManifestError, ValueError) as error:
        return str(error)
    except NativeSelectionError:
        return None


def stub_tensorrt() -> None:
    """Let what imports TensorRT be imported in this process, a child that ends with its answer."""
    sys.modules.setdefault("tensorrt", _AnyModule("tensorrt"))


class _AnyName(type):
    def __getattr__(cls, name: str) -> type:
        return _AnyName(name, (), {})


class _AnyModule(ModuleType):
    """A module with a class of every name; nothing calls into it."""

    def __getattr__(self, name: str) -> type:
        return _AnyName(name, (), {})


@cache
def _written() -> dict[Path, str]:
    return {}


def _write_once(path: Path, text: str) -> None:
    """Write unless it is there already: cases come in the order of their engines."""
    if _written().get(path) != text:
        path.write_text(text)
        _written()[path] = text


def release(case: Case) -> Any:
    """The marker and its value that the loader finds below ``root``; None where it knows no such platform."""
    from tensorrt_edgellm._native import NativeDetectionError, detect

    real = Path
    detect.Path = lambda path: real(case["root"] + path)
    try:
        return list(detect._platform_probe(case["cpu_arch"]))
    except NativeDetectionError:
        return None
    finally:
        detect.Path = real


def gpus(_case: Case) -> Any:
    """The compute capabilities that the loader reads from the driver; None where it cannot."""
    from tensorrt_edgellm._native import NativeDetectionError, detect

    try:
        return list(detect._cuda_device_sms())
    except NativeDetectionError:
        return None


QUESTIONS: dict[str, Callable[[Case], Any]] = {
    function.__name__: function
    for function in (
        speculative_shape,
        builder_arguments,
        build_plan,
        profile_limits,
        components,
        root_model_types,
        is_ready,
        layout,
        in_flight_refusal,
        payload,
        release,
        gpus,
    )
}


def main() -> None:
    asked = json.load(sys.stdin)
    answer = QUESTIONS[asked["question"]]
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        verdicts = [answer(case) for case in asked["cases"]]
    answer = json.dumps(verdicts)
    print(f"\n{answer}")


if __name__ == "__main__":
    main()
