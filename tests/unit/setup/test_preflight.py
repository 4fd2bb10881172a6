"""Each thing a new machine may lack is one line that says what to do; the machine is faked."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SETUP = Path(__file__).resolve().parents[3] / "daemon" / "setup"
GOOD_CPU = "processor : 0\nflags\t\t: fpu sse4_2 avx avx2 fma f16c bmi1 bmi2\n"
DEBIAN = 'ID=ubuntu\nID_LIKE="debian"\n'


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("edgellm_preflight", SETUP / "preflight.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


preflight = _load()


class FakeMachine(preflight.Machine):  # type: ignore[misc,name-defined]  # loaded by path
    """A sound Debian machine with Python 3.12, of which a test takes things away."""

    def __init__(self) -> None:
        self.environ: dict[str, str] = {}
        self.system_name = "Linux"
        self.architecture_name = "x86_64"
        self.files = {"/proc/cpuinfo": GOOD_CPU, "/etc/os-release": DEBIAN}
        self.present = {"/usr/include/python3.12/Python.h"}
        self.programs = {"python3": "/usr/bin/python3", "c++": "/usr/bin/c++", "make": "/usr/bin/make"}
        self.pythons = {"/usr/bin/python3": ("3.12", "yes")}
        self.compile_result = (0, "")
        self.free = 10**12

    def system(self) -> str:
        return self.system_name

    def architecture(self) -> str:
        return self.architecture_name

    def read_text(self, path: str) -> str:
        return self.files.get(path, "")

    def exists(self, path: str) -> bool:
        return path in self.present

    def which(self, name: str) -> str | None:
        return name if name in self.pythons else self.programs.get(name)

    def free_bytes(self, path: str) -> int:
        return self.free

    def run(self, argv: list[str], stdin_text: str = "") -> tuple[int, str]:
        if argv[0] in self.pythons:
            version, has_venv = self.pythons[argv[0]]
            return 0, f"{argv[0]}\n{version}\n/usr/include/python{version}\n{has_venv}\n"
        if "-std=c++20" in argv:
            return self.compile_result
        return 127, "not there"


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


def problems_of(machine: FakeMachine, profile: str = "serve") -> list[str]:
    _, problems = preflight.examine(machine, "/checkout", profile)
    return list(problems)


def test_a_sound_machine_has_no_problem(machine: FakeMachine) -> None:
    interpreter, problems = preflight.examine(machine, "/checkout", "serve")
    assert problems == []
    assert interpreter.path == "/usr/bin/python3"


def test_a_cpu_without_avx2_is_said_first_and_alone(machine: FakeMachine) -> None:
    machine.files["/proc/cpuinfo"] = GOOD_CPU.replace(" avx2", "").replace(" bmi2", "")
    machine.programs.clear()
    (problem,) = problems_of(machine)
    assert problem.startswith("this CPU lacks AVX2, BMI2 — ")
    assert "pass the host's CPU through" in problem


def test_an_arm_cpu_needs_no_x86_features(machine: FakeMachine) -> None:
    machine.architecture_name = "aarch64"
    machine.files["/proc/cpuinfo"] = "processor: 0\nFeatures: fp asimd\n"
    assert problems_of(machine) == []


def test_macos_is_one_line_that_says_what_to_do(machine: FakeMachine) -> None:
    machine.system_name = "Darwin"
    (problem,) = problems_of(machine)
    assert problem == "macOS is not supported — run edgellm in a Linux virtual machine or container (x86_64 or arm64)"


def test_windows_is_sent_to_wsl(machine: FakeMachine) -> None:
    machine.system_name = "Windows"
    (problem,) = problems_of(machine)
    assert "WSL 2" in problem


def test_a_32_bit_machine_is_refused(machine: FakeMachine) -> None:
    machine.architecture_name = "armv7l"
    (problem,) = problems_of(machine)
    assert problem.startswith("armv7l is not supported")


def test_an_old_python_is_named_with_what_to_install(machine: FakeMachine) -> None:
    machine.pythons["/usr/bin/python3"] = ("3.10", "yes")
    (problem,) = problems_of(machine)
    assert problem.startswith("Python 3.11 or newer is needed (python3 is 3.10) — sudo apt install python3.11")
    assert "PYTHON=/path/to/python" in problem


def test_a_newer_python_on_the_path_is_taken_where_python3_is_old(machine: FakeMachine) -> None:
    machine.pythons = {"/usr/bin/python3": ("3.9", "yes"), "/opt/python3.13": ("3.13", "yes")}
    machine.programs["python3.13"] = "/opt/python3.13"
    machine.present.add("/usr/include/python3.13/Python.h")
    interpreter, problems = preflight.examine(machine, "/checkout", "serve")
    assert problems == []
    assert interpreter.path == "/opt/python3.13"


def test_the_python_that_is_named_is_taken_alone(machine: FakeMachine) -> None:
    machine.environ["PYTHON"] = "/opt/python3.10"
    machine.pythons["/opt/python3.10"] = ("3.10", "yes")
    (problem,) = problems_of(machine)
    assert "(/opt/python3.10 is 3.10)" in problem


def test_a_named_python_that_does_not_run_is_said(machine: FakeMachine) -> None:
    machine.environ["PYTHON"] = "/opt/none"
    (problem,) = problems_of(machine)
    assert "(/opt/none does not run)" in problem


def test_a_missing_venv_module_names_the_package(machine: FakeMachine) -> None:
    machine.pythons["/usr/bin/python3"] = ("3.12", "no")
    assert problems_of(machine) == ["/usr/bin/python3 has no venv module — sudo apt install python3-venv"]


def test_missing_headers_name_the_package(machine: FakeMachine) -> None:
    machine.present.clear()
    assert problems_of(machine) == ["Python.h of /usr/bin/python3 is missing — sudo apt install python3-dev"]


def test_a_python_beside_the_default_gets_its_own_package_names(machine: FakeMachine) -> None:
    machine.environ["PYTHON"] = "/usr/bin/python3.13"
    machine.pythons["/usr/bin/python3.13"] = ("3.13", "no")
    assert problems_of(machine) == [
        "/usr/bin/python3.13 has no venv module — sudo apt install python3.13-venv",
        "Python.h of /usr/bin/python3.13 is missing — sudo apt install python3.13-dev",
    ]


def test_a_missing_compiler_names_the_package(machine: FakeMachine) -> None:
    del machine.programs["c++"]
    assert problems_of(machine) == ["no C++ compiler was found — sudo apt install g++"]


def test_an_old_compiler_is_said_with_its_own_error(machine: FakeMachine) -> None:
    machine.compile_result = (1, "c++: error: unrecognized command-line option '-std=c++20'\n")
    (problem,) = problems_of(machine)
    assert problem.startswith("c++ cannot compile C++20 (c++: error: unrecognized command-line option")
    assert "CXX=" in problem


def test_a_named_compiler_that_is_not_there_is_said(machine: FakeMachine) -> None:
    machine.environ["CXX"] = "nowhere-g++"
    assert problems_of(machine) == ["the C++ compiler CXX=nowhere-g++ is not there — unset CXX or install it"]


def test_missing_make_is_said(machine: FakeMachine) -> None:
    del machine.programs["make"]
    assert problems_of(machine) == ["make was not found — sudo apt install make"]


def test_a_full_disk_is_said_in_numbers(machine: FakeMachine) -> None:
    machine.free = 200 * 10**6
    (problem,) = problems_of(machine)
    assert problem.startswith("200 MB are free in /checkout and about ")


def test_everything_that_is_missing_is_said_at_once(machine: FakeMachine) -> None:
    machine.pythons["/usr/bin/python3"] = ("3.12", "no")
    machine.present.clear()
    del machine.programs["c++"]
    assert len(problems_of(machine)) == 3


@pytest.mark.parametrize(
    ("release", "hint"),
    [
        ("ID=fedora\n", "sudo dnf install gcc-c++"),
        ("ID=arch\n", "sudo pacman -S gcc"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "sudo dnf install gcc-c++"),
        ("ID=gentoo\n", "install g++ 11 or clang 14, or newer"),
    ],
)
def test_the_hint_speaks_the_distribution(machine: FakeMachine, release: str, hint: str) -> None:
    machine.files["/etc/os-release"] = release
    del machine.programs["c++"]
    assert problems_of(machine) == [f"no C++ compiler was found — {hint}"]


def test_problems_are_single_lines_on_standard_error(machine: FakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.system_name = "Darwin"
    assert preflight.main(["serve"], machine) == 69
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("edgellm: macOS")


def test_the_real_machine_compiles_the_probe() -> None:
    assert preflight.check_compiler(preflight.Machine()) == []


def test_the_real_interpreter_describes_itself() -> None:
    interpreter = preflight.Interpreter.ask(preflight.Machine(), sys.executable)
    assert interpreter is not None
    assert interpreter.version == sys.version_info[:2]


def test_preflight_keeps_to_the_syntax_of_old_pythons() -> None:
    import ast

    ast.parse((SETUP / "preflight.py").read_text(encoding="utf-8"), feature_version=(3, 6))


def test_no_python_at_all_is_one_line(tmp_path: Path) -> None:
    for name in ("sh", "dirname"):
        (tmp_path / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
    completed = subprocess.run(
        ["/bin/sh", str(SETUP / "run"), "serve"],
        env={"PATH": str(tmp_path), "EDGELLM_VENV": str(tmp_path / "venv")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 69
    assert completed.stderr.startswith("edgellm: no Python was found — install Python 3.11 or newer")
    assert completed.stderr.count("\n") == 1


def test_an_empty_answer_of_a_python_is_no_python() -> None:
    silent = SimpleNamespace(run=lambda argv: (0, ""))
    assert preflight.Interpreter.ask(silent, "/usr/bin/python3") is None
