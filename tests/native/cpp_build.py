"""Builds the C++ runtime with its tests in a folder of its own and runs them with ctest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sysconfig.get_paths()["scripts"])
OUTPUT_CHARACTERS_SHOWN = 6000


def ggml_dir(site_packages: Path | None = None) -> Path:
    """CMake files of the packaged tensor library."""
    return (site_packages or Path(sysconfig.get_paths()["purelib"])) / "libggml" / "lib64" / "cmake" / "ggml"


def build(folder: Path, definitions: Mapping[str, str], *, ggml: Path) -> None:
    """Configure and build. What goes wrong is shown with the end of the output."""
    options = {"EDGELLM_PYTHON": "OFF", "EDGELLM_TESTS": "ON", "ggml_DIR": str(ggml), **definitions}
    arguments = [f"-D{name}={value}" for name, value in options.items()]
    _run(["cmake", "-S", str(ROOT / "native"), "-B", str(folder), "-G", "Ninja", *arguments])
    _run(["cmake", "--build", str(folder)])


def run_tests(folder: Path, *, command_prefix: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> str:
    """Every test passes, or its output is shown. Gives ctest's closing lines."""
    output = _run(
        [*command_prefix, "ctest", "--test-dir", str(folder), "--output-on-failure", "--timeout", "7200"],
        environ=environ,
    )
    closing = re.search(r"^\d+% tests passed[\s\S]*", output, re.MULTILINE)
    assert closing is not None, output[-OUTPUT_CHARACTERS_SHOWN:]
    return closing[0]


def download_for(platform_tag: str, requirement: str, folder: Path) -> Path:
    """A package's wheel for another machine, unpacked; kept between runs."""
    target = folder / re.sub(r"[^\w.-]", "_", f"{requirement}-{platform_tag}")
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        source = ["--no-deps", "--only-binary", ":all:", "--platform", platform_tag]
        _run([sys.executable, "-m", "pip", "install", "--quiet", *source, "--target", str(partial), requirement])
        partial.rename(target)
    return target


def _run(argv: Sequence[str], *, environ: Mapping[str, str] | None = None) -> str:
    completed = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}", **(environ or {})},
    )
    assert completed.returncode == 0, f"{' '.join(argv[:6])} …\n{completed.stdout[-OUTPUT_CHARACTERS_SHOWN:]}"
    return completed.stdout
