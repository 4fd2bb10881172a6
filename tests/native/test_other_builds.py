"""The C++ tests pass where they are not built every day: under the thread sanitizer and for 64-bit Arm."""

from __future__ import annotations

import os
import platform
import shutil
import tomllib
from pathlib import Path

import pytest
from tests.native.cpp_build import ROOT, build, download_for, ggml_dir, run_tests

pytestmark = pytest.mark.long

CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgellm-tests"
AARCH64_WHEEL_PLATFORM = "manylinux_2_28_aarch64"
# The tensor library is built without the sanitizer, so what its own threads do looks like races. It leaves its critical
# sections by a tail call: the unlock then seems to come from whoever called the library, and the lock was not seen.
SUPPRESSIONS = """\
called_from_lib:libggml-cpu.so
called_from_lib:libggml-base.so
called_from_lib:libggml.so
mutex:find_ggml_matmul_kernel
"""


def ggml_requirement() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return next(str(entry) for entry in project["dependencies"] if entry.startswith("libggml-python"))


def test_the_cpp_tests_pass_under_the_thread_sanitizer(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    suppressions = tmp_path / "suppressions"
    suppressions.write_text(SUPPRESSIONS)
    build(folder, {"CMAKE_BUILD_TYPE": "RelWithDebInfo", "EDGELLM_SANITIZE": "thread"}, ggml=ggml_dir())
    # The sanitizer's memory layout does not bear much address randomisation.
    without_randomisation = ["setarch", platform.machine(), "--addr-no-randomize"]
    options = f"suppressions={suppressions}:halt_on_error=1:second_deadlock_stack=1"
    print(run_tests(folder, command_prefix=without_randomisation, environ={"TSAN_OPTIONS": options}))


def test_the_cpp_tests_pass_on_aarch64_under_emulation(tmp_path: Path) -> None:
    missing = [tool for tool in ("aarch64-linux-gnu-g++", "qemu-aarch64-static") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: apt install g++-aarch64-linux-gnu qemu-user-static")
    packages = download_for(AARCH64_WHEEL_PLATFORM, ggml_requirement(), CACHE_FOLDER)
    toolchain = ROOT / "native" / "cmake" / "aarch64-toolchain.cmake"
    folder = tmp_path / "build"
    build(
        folder,
        {"CMAKE_BUILD_TYPE": "Release", "CMAKE_TOOLCHAIN_FILE": str(toolchain)},
        ggml=ggml_dir(packages),
    )
    print(run_tests(folder))
