"""Says in one line each what this machine lacks before edgellm can be set up; changes nothing.

Runs before any environment exists and on old interpreters too, hence only the standard library and the syntax
of Python 3.6. Once everything is there it hands over to environment.py under the interpreter it chose.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile

OLDEST_PYTHON = (3, 11)
PYTHON_NAMES = ("python3", "python3.13", "python3.12", "python3.11", "python3.14")
# The x86_64 build of the tensor library uses these without asking the CPU.
X86_CPU_FLAGS = ("avx2", "fma", "f16c", "bmi2")
ARCHITECTURES = ("x86_64", "aarch64")
COMPILERS = ("c++", "g++", "clang++")
COMPILE_SECONDS_MAX = 120
DISK_BYTES_NEEDED = {"serve": 1000 * 10**6, "lint": 800 * 10**6, "test": 2000 * 10**6, "bench": 1200 * 10**6}
EXIT_UNAVAILABLE = 69

CXX20_PROBE = """\
#include <bit>
#include <concepts>
#include <cstdint>
#include <span>
#include <vector>
template <std::integral T> T total(std::span<const T> values) {
    T sum = 0;
    for (const T value : values) sum += value;
    return sum;
}
int main() {
    const std::vector<std::uint32_t> values{1, 2, 3};
    return std::popcount(total(std::span<const std::uint32_t>(values))) == 2 ? 0 : 1;
}
"""


class Machine(object):
    """What preflight asks of the machine it runs on; tests answer in its place."""

    environ = os.environ

    def system(self):
        return platform.system()

    def architecture(self):
        return platform.machine()

    def read_text(self, path):
        """The file's text, or "" when it cannot be read."""
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                return stream.read()
        except OSError:
            return ""

    def exists(self, path):
        return os.path.exists(path)

    def which(self, name):
        return shutil.which(name)

    def free_bytes(self, path):
        return shutil.disk_usage(path).free

    def run(self, argv, stdin_text=""):
        """(exit code, output) of a command; a command that cannot run or does not end counts as failed."""
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
            )
        except OSError as error:
            return 127, str(error)
        try:
            output, _ = process.communicate(stdin_text, timeout=COMPILE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return 124, "no answer within %d s" % COMPILE_SECONDS_MAX
        return process.returncode, output


class Interpreter(object):
    """A Python on this machine, described by itself."""

    _DESCRIBE = (
        "import sys, sysconfig\n"
        "print(sys.executable)\n"
        "print('%d.%d' % sys.version_info[:2])\n"
        "print(sysconfig.get_paths()['include'])\n"
        "try:\n"
        "    import venv, ensurepip\n"
        "    print('yes')\n"
        "except ImportError:\n"
        "    print('no')\n"
    )

    def __init__(self, path, version, include, has_venv):
        self.path = path
        self.version = version
        self.include = include
        self.has_venv = has_venv

    @classmethod
    def ask(cls, machine, path):
        """The interpreter at `path`, or None when it does not answer."""
        code, output = machine.run([path, "-c", cls._DESCRIBE])
        lines = output.splitlines()
        if code != 0 or len(lines) != 4:
            return None
        version = tuple(int(part) for part in lines[1].split("."))
        return cls(lines[0], version, lines[2], lines[3] == "yes")


def install_hint(machine, debian, fedora, arch, other):
    """The command that installs a prerequisite on this distribution."""
    release = machine.read_text("/etc/os-release")
    words = []
    for line in release.splitlines():
        key, _, value = line.partition("=")
        if key in ("ID", "ID_LIKE"):
            words += value.strip("\"'").split()
    if "debian" in words or "ubuntu" in words:
        return "sudo apt install " + debian
    if "fedora" in words or "rhel" in words:
        return "sudo dnf install " + fedora
    if "arch" in words:
        return "sudo pacman -S " + arch
    return other


def missing_cpu_features(machine):
    if machine.system() != "Linux" or machine.architecture() != "x86_64":
        return []
    if machine.environ.get("EDGELLM_GGML_DIR"):  # a tensor library of the site's own, built for its CPU
        return []
    for line in machine.read_text("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            present = value.split()
            return [flag for flag in X86_CPU_FLAGS if flag not in present]
    return []


def check_platform(machine):
    """Problems that no installation mends; the CPU comes first."""
    missing = missing_cpu_features(machine)
    if missing:
        return [
            "this CPU lacks %s — edgellm's CPU runtime needs an x86_64 CPU with AVX2 (2013 or newer) or a 64-bit Arm "
            "CPU; in a virtual machine, pass the host's CPU through" % ", ".join(flag.upper() for flag in missing)
        ]
    system = machine.system()
    if system == "Darwin":
        return ["macOS is not supported — run edgellm in a Linux virtual machine or container (x86_64 or arm64)"]
    if system != "Linux":
        return ["%s is not supported — run edgellm on Linux, on Windows inside WSL 2" % (system or "this system")]
    if machine.architecture() not in ARCHITECTURES:
        return [
            "%s is not supported — edgellm runs on 64-bit x86_64 and aarch64 Linux" % (machine.architecture() or "?")
        ]
    return []


def choose_interpreter(machine):
    """(interpreter, problems): the one PYTHON names, else the first on PATH that is new enough."""
    oldest = "%d.%d" % OLDEST_PYTHON
    named = machine.environ.get("PYTHON", "")
    seen = []
    for name in (named,) if named else PYTHON_NAMES:
        path = machine.which(name)
        interpreter = Interpreter.ask(machine, path) if path else None
        if interpreter is None:
            continue
        if interpreter.version >= OLDEST_PYTHON:
            return interpreter, []
        seen.append("%s is %d.%d" % ((name,) + interpreter.version))
    hint = install_hint(
        machine,
        "python3.11 python3.11-venv python3.11-dev",
        "python3.11 python3.11-devel",
        "python",
        "install it from your distribution",
    )
    found = ", ".join(seen) if seen else "%s does not run" % (named or "no Python here")
    return None, ["Python %s or newer is needed (%s) — %s, or give PYTHON=/path/to/python" % (oldest, found, hint)]


def check_interpreter(machine, interpreter):
    problems = []
    exact = "python%d.%d" % interpreter.version
    # Debian's own default is packaged as python3-…, any other version by its number.
    default = machine.which("python3")
    prefix = "python3" if default and os.path.realpath(default) == os.path.realpath(interpreter.path) else exact
    if not interpreter.has_venv:
        hint = install_hint(
            machine, prefix + "-venv", "python3", "python", "install Python's venv and ensurepip modules"
        )
        problems.append("%s has no venv module — %s" % (interpreter.path, hint))
    if not machine.exists(os.path.join(interpreter.include, "Python.h")):
        hint = install_hint(
            machine, prefix + "-dev", prefix + "-devel", "python", "install Python's development headers"
        )
        problems.append("Python.h of %s is missing — %s" % (interpreter.path, hint))
    return problems


def check_compiler(machine):
    hint = install_hint(machine, "g++", "gcc-c++", "gcc", "install g++ 11 or clang 14, or newer")
    named = machine.environ.get("CXX", "")
    if named:
        command = named.split()
        if machine.which(command[0]) is None:
            return ["the C++ compiler CXX=%s is not there — unset CXX or install it" % named]
    else:
        found = [name for name in COMPILERS if machine.which(name)]
        if not found:
            return ["no C++ compiler was found — " + hint]
        command = [found[0]]
    folder = tempfile.mkdtemp(prefix="edgellm-preflight-")
    try:
        program = os.path.join(folder, "probe")
        code, output = machine.run(command + ["-std=c++20", "-x", "c++", "-", "-o", program], CXX20_PROBE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if code == 0:
        return []
    errors = [line for line in output.splitlines() if "error" in line.lower()] or output.splitlines() or ["no output"]
    return [
        "%s cannot compile C++20 (%s) — %s; another compiler is chosen with CXX="
        % (" ".join(command), errors[0].strip()[:160], hint)
    ]


def check_make(machine):
    if machine.which("make") or machine.which("gmake"):
        return []
    return ["make was not found — " + install_hint(machine, "make", "make", "make", "install GNU make")]


def check_disk(machine, folder, profile):
    needed = DISK_BYTES_NEEDED.get(profile, max(DISK_BYTES_NEEDED.values()))
    free = machine.free_bytes(folder)
    if free >= needed:
        return []
    return [
        "%d MB are free in %s and about %d MB are needed — make room there" % (free // 10**6, folder, needed // 10**6)
    ]


def examine(machine, folder, profile):
    """(interpreter, problems). Later checks that make no sense after an earlier problem are left out."""
    problems = check_platform(machine)
    if problems:
        return None, problems
    interpreter, problems = choose_interpreter(machine)
    if interpreter is not None:
        problems = problems + check_interpreter(machine, interpreter)
    problems = problems + check_compiler(machine) + check_make(machine) + check_disk(machine, folder, profile)
    return interpreter, problems


def main(arguments, machine=None):
    machine = machine or Machine()
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    interpreter, problems = examine(machine, root, arguments[0] if arguments else "serve")
    if problems or interpreter is None:
        for problem in problems:
            sys.stderr.write("edgellm: %s\n" % problem)
        return EXIT_UNAVAILABLE
    sys.stderr.flush()
    script = os.path.join(here, "environment.py")
    os.execv(interpreter.path, [interpreter.path, script] + list(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
