"""The native module and its tensor library: found, checked and matched, or one sentence that says what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgellm.errors import RuntimeUnavailableError
from edgellm.runtime.native_module import check_cpu, guidance_library, load_native_module

REPOSITORY = Path(__file__).parents[3]
PROCESS_TIMEOUT_SECONDS = 120

LOAD_IN_A_FRESH_PROCESS = """
import os, sys
from pathlib import Path
from edgellm.errors import RuntimeUnavailableError
from edgellm.runtime.native_module import load_native_module
try:
    print("loaded", load_native_module(os.environ, cpu_info_file=Path(sys.argv[1])).ggml_version)
except RuntimeUnavailableError as error:
    print("refused:", error)
"""


def load_in_a_fresh_process(cpu_info_file: Path = Path("/proc/cpuinfo"), *, ggml_folder: str = "") -> str:
    environment = {**os.environ, "EDGELLM_GGML_DIR": ggml_folder}
    done = subprocess.run(
        [sys.executable, "-c", LOAD_IN_A_FRESH_PROCESS, str(cpu_info_file)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PROCESS_TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def packaged_folder() -> Path:
    import libggml

    return Path(next(iter(libggml.__path__))) / "lib64"


def cpu_info(tmp_path: Path, flags: str) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\nmodel name\t: A CPU\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    return path


def test_the_module_loads_once_and_stays() -> None:
    module = load_native_module(os.environ)
    assert load_native_module(os.environ) is module


def test_no_library_search_path_is_baked_into_the_module() -> None:
    module_file = str(load_native_module(os.environ).__file__)
    command = ["readelf", "--dynamic", module_file]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PROCESS_TIMEOUT_SECONDS)
    assert "libggml.so" in done.stdout
    assert "RUNPATH" not in done.stdout
    assert "RPATH" not in done.stdout


def test_a_cpu_without_the_instructions_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    path = cpu_info(tmp_path, "fpu sse4_2 avx bmi2")
    with pytest.raises(RuntimeUnavailableError, match="this CPU has no AVX2, FMA, F16C, which the native runtime"):
        check_cpu(path, machine="x86_64")


def test_a_cpu_with_the_instructions_passes(tmp_path: Path) -> None:
    check_cpu(cpu_info(tmp_path, "fpu avx2 fma f16c bmi2"), machine="x86_64")


def test_other_architectures_and_silent_systems_are_not_second_guessed(tmp_path: Path) -> None:
    check_cpu(cpu_info(tmp_path, "fpu"), machine="aarch64")
    check_cpu(tmp_path / "absent", machine="x86_64")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only the x86-64 package assumes CPU instructions")
def test_an_old_cpu_gets_a_sentence_and_no_illegal_instruction(tmp_path: Path) -> None:
    answer = load_in_a_fresh_process(cpu_info(tmp_path, "fpu sse4_2"))
    assert answer.startswith("refused: this CPU has no AVX2")


def test_a_site_may_bring_its_own_ggml(tmp_path: Path) -> None:
    folder = tmp_path / "ggml" / "lib"
    folder.parent.mkdir()
    folder.symlink_to(packaged_folder())
    assert load_in_a_fresh_process(cpu_info(tmp_path, "fpu"), ggml_folder=str(folder.parent)).startswith("loaded 0.")


def test_a_folder_that_is_no_ggml_is_named(tmp_path: Path) -> None:
    answer = load_in_a_fresh_process(ggml_folder=str(tmp_path))
    assert answer == f"refused: {tmp_path} holds no libggml-base.so and libggml.so; is it a folder of ggml?"


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    for name in ("libggml-base.so", "libggml.so"):
        (tmp_path / name).write_bytes(b"no library")
    answer = load_in_a_fresh_process(ggml_folder=str(tmp_path))
    assert answer.startswith(f"refused: {tmp_path / 'libggml-base.so'} cannot be loaded: ")


def test_another_version_of_ggml_is_refused_with_both_versions(tmp_path: Path) -> None:
    packaged = packaged_folder()
    for name in ("libggml-cpu.so", "libggml.so"):
        (tmp_path / name).symlink_to(packaged / name)
    compile_base(tmp_path, packaged, 'const char *ggml_version(void) { return "9.9.9"; }')
    answer = load_in_a_fresh_process(ggml_folder=str(tmp_path))
    assert answer.startswith("refused: ")
    assert "9.9.9" in answer
    assert "build edgellm again" in answer


def test_a_ggml_that_tells_no_version_is_refused(tmp_path: Path) -> None:
    compile_base(tmp_path, None, "int nothing;")
    (tmp_path / "libggml.so").symlink_to(tmp_path / "libggml-base.so")
    assert "does not tell its version" in load_in_a_fresh_process(ggml_folder=str(tmp_path))


def compile_base(folder: Path, packaged: Path | None, source: str) -> None:
    """Make a libggml-base.so that answers by itself and leaves the rest to the packaged one."""
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / "libggml-base.so")]
    if packaged is not None:
        command += [f"-Wl,-rpath,{packaged}", f"-L{packaged}", "-Wl,--no-as-needed", "-lggml-base"]
    subprocess.run(command, input=source, text=True, check=True, timeout=PROCESS_TIMEOUT_SECONDS)


def test_the_guidance_library_carries_the_c_interface() -> None:
    import ctypes

    assert ctypes.CDLL(guidance_library()).llg_new_matcher
