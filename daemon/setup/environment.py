"""Sets up the virtual environment step by step; a step that is done and whose inputs did not change is skipped.

A step's stamp holds the digest of what went into it and is written only after the step succeeded, so an
interrupted set-up resumes at the step it was in, and a second run touches neither pip nor the network.
Needs only the standard library. Started by `run`, through preflight.py when the environment is not there yet.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import progress

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(os.environ.get("EDGELLM_VENV", ROOT / ".venv")).absolute()
STAMPS = VENV / "build"
PYTHON = VENV / "bin" / "python"
PYPROJECT = ROOT / "pyproject.toml"
MODEL_PATH_FILE = STAMPS / "model.path"
WHISPER_PATH_FILE = STAMPS / "whisper.path"
VOICE_PATH_FILE = STAMPS / "voice.path"
LOCK = ROOT / ".ci" / "requirements.lock"

# What each make target stands on. Steps run in this order, one step's output being the next one's input.
PROFILES: dict[str, tuple[str, ...]] = {
    "lint": ("venv", "packages", "lint"),
    "native": ("venv", "packages", "native"),
    "serve": ("venv", "packages", "client", "native", "model"),
    "bench": ("venv", "packages", "native", "bench", "test", "audio", "speech", "model", "whisper", "voice"),
    "test": ("venv", "packages", "native", "bench", "test", "audio", "speech", "model", "whisper", "voice"),
    "clients": ("venv", "packages", "clients"),
    "fleet": ("venv", "packages", "native", "bench", "test", "audio", "speech", "fleet", "model", "whisper", "voice"),
    "audio": ("venv", "packages", "native", "audio", "whisper"),
    "speech": ("venv", "packages", "native", "speech", "voice"),
    "lock": ("venv", "lock"),
}
DEFAULT_MODEL = "smollm2-135m-instruct"
HEARING_MODEL = "whisper-tiny.en"
SPEAKING_MODEL = "voice"


@dataclass(frozen=True)
class Step:
    """``digest`` names the inputs; ``act`` is safe to repeat after it was interrupted at any point."""

    title: str
    digest: Callable[[], str]
    act: Callable[[bool], None]  # told whether an earlier attempt was interrupted
    is_there: Callable[[], bool] = lambda: True  # for results that others may remove


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _project() -> dict[str, Any]:
    return tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))


def _group(name: str) -> list[str]:
    return [str(requirement) for requirement in _project()["dependency-groups"][name]]


def _extra(name: str) -> list[str]:
    return [str(requirement) for requirement in _project()["project"]["optional-dependencies"][name]]


def _lock_text() -> str:
    return LOCK.read_text(encoding="utf-8") if LOCK.is_file() else ""


def _native_files() -> Iterator[Path]:
    for path in sorted((ROOT / "native").rglob("*")):
        if path.is_file() and path.suffix in {".cpp", ".hpp", ".h", ".txt", ".cmake", ".in"}:
            yield path
    yield ROOT / "daemon" / "edgellm" / "engines" / "end_token_texts.txt"  # compiled in


def _native_digest() -> str:
    project = _project()
    sources = [(str(path.relative_to(ROOT)), hashlib.sha256(path.read_bytes()).hexdigest()) for path in _native_files()]
    build = [project["build-system"], project["tool"]["scikit-build"], project["project"]]
    chosen = [os.environ.get(name, "") for name in ("CXX", "CXXFLAGS", "CMAKE_ARGS", "ggml_DIR")]
    return _digest(sources, build, chosen, str(ROOT))


def _environ() -> dict[str, str]:
    """The caller's environment (index, proxy and certificate settings pass through) with the venv's tools first."""
    environ = dict(os.environ)
    environ["PATH"] = f"{VENV / 'bin'}{os.pathsep}{environ.get('PATH', '')}"
    environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    environ["PIP_NO_INPUT"] = "1"
    environ.pop("PYTHONHOME", None)
    environ.pop("PYTHONPATH", None)
    return environ


def _run(step: str, argv: Sequence[str]) -> None:
    STAMPS.mkdir(parents=True, exist_ok=True)
    title = f"set-up: {STEPS[step].title}"
    progress.run(title, argv, log=STAMPS / f"{step}.log", environ=_environ(), cwd=ROOT)


def _pip_install(step: str, requirements: Sequence[str], again: bool) -> None:
    argv = [str(PYTHON), "-m", "pip", "install", "--progress-bar", "off"]
    if LOCK.is_file():
        argv += ["--constraint", str(LOCK)]
    if again:  # a killed pip may have left a package that looks installed and is not whole
        argv += ["--force-reinstall"]
    _run(step, [*argv, *requirements])


def _make_venv(_again: bool) -> None:
    interpreter = os.path.realpath(sys.executable)
    title = f"set-up: {STEPS['venv'].title}"
    log = VENV.with_name(VENV.name + ".log")
    progress.run(title, [interpreter, "-m", "venv", "--clear", str(VENV)], log=log, environ=dict(os.environ), cwd=ROOT)
    STAMPS.mkdir(parents=True, exist_ok=True)
    log.rename(STAMPS / "venv.log")


def _build_native(_again: bool) -> None:
    argv = [str(PYTHON), "-m", "pip", "install", "--verbose", "--no-build-isolation", "--no-deps"]
    _run("native", [*argv, "--editable", str(ROOT)])


def _fetch(step: str, model: str, path_file: Path) -> None:
    command = [str(PYTHON), "-m", "edgellm", "models"]
    _run(step, [*command, "add", model])
    shown = subprocess.run(
        [*command, "show", "--path", model],
        env=_environ(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    path_file.write_text(shown.stdout.strip(), encoding="utf-8")


def _model_digest(model: str) -> str:
    return _digest(model, [os.environ.get(name, "") for name in ("EDGELLM_CACHE_DIR", "XDG_CACHE_HOME", "HOME")])


def _model_is_there(path_file: Path) -> bool:
    """A cache outside the checkout may be cleaned without telling."""
    try:
        return Path(path_file.read_text(encoding="utf-8")).exists()
    except OSError:
        return False


STEPS: dict[str, Step] = {
    "venv": Step(
        "virtual environment",
        lambda: _digest(os.path.realpath(sys.executable), sys.version_info[:2], str(VENV)),
        _make_venv,
    ),
    "packages": Step(
        "Python packages",
        lambda: _digest(_project()["project"]["dependencies"], _group("build"), _lock_text()),
        lambda again: _pip_install("packages", [*_group("build"), *_project()["project"]["dependencies"]], again),
    ),
    "native": Step("native runtime (C++)", _native_digest, _build_native),
    "model": Step(
        "model SmolLM2-135M-Instruct (93 MB)",
        lambda: _model_digest(DEFAULT_MODEL),
        lambda _again: _fetch("model", DEFAULT_MODEL, MODEL_PATH_FILE),
        lambda: _model_is_there(MODEL_PATH_FILE),
    ),
    "whisper": Step(
        "model Whisper tiny.en (70 MB)",
        lambda: _model_digest(HEARING_MODEL),
        lambda _again: _fetch("whisper", HEARING_MODEL, WHISPER_PATH_FILE),
        lambda: _model_is_there(WHISPER_PATH_FILE),
    ),
    "voice": Step(
        "voice en_US-joe-medium (58 MB)",
        lambda: _model_digest(SPEAKING_MODEL),
        lambda _again: _fetch("voice", SPEAKING_MODEL, VOICE_PATH_FILE),
        lambda: _model_is_there(VOICE_PATH_FILE),
    ),
    "audio": Step(
        "speech recognition",
        lambda: _digest(_extra("audio"), _lock_text()),
        lambda again: _pip_install("audio", _extra("audio"), again),
    ),
    "speech": Step(
        "speech",
        lambda: _digest(_extra("speech"), _lock_text()),
        lambda again: _pip_install("speech", _extra("speech"), again),
    ),
    "client": Step(
        "OpenAI client",
        lambda: _digest(_group("client"), _lock_text()),
        lambda again: _pip_install("client", _group("client"), again),
    ),
    "lint": Step(
        "lint packages",
        lambda: _digest(_group("lint"), _lock_text()),
        lambda again: _pip_install("lint", _group("lint"), again),
    ),
    "test": Step(
        "test packages",
        lambda: _digest(_group("test"), _lock_text()),
        lambda again: _pip_install("test", _group("test"), again),
    ),
    "clients": Step(
        "client libraries to be served",
        lambda: _digest(_group("clients"), _lock_text()),
        lambda again: _pip_install("clients", _group("clients"), again),
    ),
    "fleet": Step(
        "Ansible",
        lambda: _digest(_group("fleet"), _lock_text()),
        lambda again: _pip_install("fleet", _group("fleet"), again),
    ),
    "bench": Step(
        "llama.cpp to compare with",
        lambda: _digest(_group("bench"), _lock_text()),
        lambda again: _pip_install("bench", _group("bench"), again),
    ),
    "lock": Step(
        "lock tool",
        lambda: _digest(_group("lock")),
        lambda again: _pip_install("lock", _group("lock"), again),
    ),
}


def _stamp(step: str) -> Path:
    return STAMPS / f"{step}.stamp"


def _is_current(step: str) -> bool:
    try:
        stamp = _stamp(step).read_text(encoding="ascii")
    except OSError:
        return False
    return stamp == STEPS[step].digest() and STEPS[step].is_there()


def _perform(step: str) -> None:
    stamp, begun = _stamp(step), STAMPS / f"{step}.begun"
    digest = STEPS[step].digest()
    again = begun.exists()
    if step != "venv":
        begun.touch()
    STEPS[step].act(again)
    partial = stamp.with_suffix(".partial")
    partial.write_text(digest, encoding="ascii")
    partial.replace(stamp)
    begun.unlink(missing_ok=True)


@contextmanager
def _only_one() -> Iterator[None]:
    """Two set-ups of one checkout never run at the same time; the second waits and then finds it all done."""
    with PYPROJECT.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("set-up: another set-up of this checkout is running; waiting for it …\n")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def set_up(profile: str) -> None:
    """Return once every step of the profile is done. Raises progress.StepFailedError."""
    steps = PROFILES[profile]
    if all(_is_current(step) for step in steps):
        return
    with _only_one():
        for step in steps:
            if not _is_current(step):
                _perform(step)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="environment.py", description="Sets up what a make target needs.")
    parser.add_argument("profile", choices=sorted(PROFILES))
    profile = parser.parse_args(arguments).profile
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        set_up(profile)
    except progress.StepFailedError as error:
        for line in error.tail:
            sys.stderr.write(f"  | {line}\n")
        sys.stderr.write(f"edgellm: {error} — mend the cause and run the same command again; it resumes here\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("edgellm: set-up interrupted — run the same command again; it resumes where it was\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
