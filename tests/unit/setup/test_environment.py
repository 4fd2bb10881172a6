"""Set-up steps run once, resume after an interruption, and leave a finished environment alone."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SETUP = Path(__file__).resolve().parents[3] / "daemon" / "setup"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, with its environment in a folder of the test's own."""
    monkeypatch.setenv("EDGELLM_VENV", str(tmp_path / "venv"))
    monkeypatch.syspath_prepend(str(SETUP))
    for name in ("environment", "progress"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location("environment", SETUP / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "environment", module)
    spec.loader.exec_module(module)
    module.STAMPS.mkdir(parents=True)
    yield module
    sys.modules.pop("progress", None)


class Recorder:
    """Stands in for the actions of the steps, so that nothing is installed."""

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.fail_in = ""
        self.inputs: dict[str, str] = {}
        steps = {name: module.Step(name, self._digest(name), self._act(name)) for name in module.STEPS}
        monkeypatch.setattr(module, "STEPS", steps)

    def _digest(self, name: str) -> object:
        return lambda: self.inputs.get(name, "first")

    def _act(self, name: str) -> object:
        def act(again: bool) -> None:
            self.calls.append((name, again))
            if self.fail_in == name:
                raise KeyboardInterrupt

        return act

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@pytest.fixture
def recorder(environment: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(environment, monkeypatch)


def test_a_new_machine_runs_every_step_in_order(environment: ModuleType, recorder: Recorder) -> None:
    environment.set_up("serve")
    assert recorder.names == list(environment.PROFILES["serve"])


def test_a_second_run_does_nothing(environment: ModuleType, recorder: Recorder) -> None:
    environment.set_up("serve")
    recorder.calls.clear()
    environment.set_up("serve")
    assert recorder.calls == []


def test_an_interrupted_step_is_repeated_and_knows_it(environment: ModuleType, recorder: Recorder) -> None:
    recorder.fail_in = "native"
    with pytest.raises(KeyboardInterrupt):
        environment.set_up("serve")
    recorder.fail_in = ""
    recorder.calls.clear()
    environment.set_up("serve")
    assert recorder.calls == [("native", True), ("model", False)]


def test_changed_inputs_repeat_that_step_alone(environment: ModuleType, recorder: Recorder) -> None:
    environment.set_up("serve")
    recorder.calls.clear()
    recorder.inputs["native"] = "second"
    environment.set_up("serve")
    assert recorder.calls == [("native", False)]


def test_a_result_that_was_removed_is_made_again(
    environment: ModuleType, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.set_up("serve")
    recorder.calls.clear()
    model = environment.STEPS["model"]
    monkeypatch.setitem(
        environment.STEPS, "model", environment.Step(model.title, model.digest, model.act, lambda: False)
    )
    environment.set_up("serve")
    assert recorder.names == ["model"]


def test_tests_add_to_what_serve_set_up(environment: ModuleType, recorder: Recorder) -> None:
    environment.set_up("serve")
    recorder.calls.clear()
    environment.set_up("test")
    assert set(recorder.names) == set(environment.PROFILES["test"]) - set(environment.PROFILES["serve"])


def test_every_profile_knows_its_steps(environment: ModuleType) -> None:
    for steps in environment.PROFILES.values():
        assert steps[0] == "venv"
        assert set(steps) <= set(environment.STEPS)


def test_a_changed_native_source_changes_the_digest(
    environment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "native" / "src" / "engine.cpp"
    compiled_in = tmp_path / "daemon" / "edgellm" / "engines" / "end_token_texts.txt"
    for path in (source, compiled_in):
        path.parent.mkdir(parents=True)
        path.write_text("one\n")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    for path in (source, compiled_in):
        before = environment.STEPS["native"].digest()
        assert environment.STEPS["native"].digest() == before
        path.write_text("two\n")
        assert environment.STEPS["native"].digest() != before


def test_a_failed_command_shows_its_last_lines_and_the_log(
    environment: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = sys.modules["progress"]
    log = environment.STAMPS / "probe.log"
    with pytest.raises(progress.StepFailedError, match=r"probe failed with exit code 3; the whole output is in .*log"):
        progress.run(
            "probe",
            [sys.executable, "-c", "print('one\\ntwo'); raise SystemExit(3)"],
            log=log,
            environ={},
            cwd=environment.ROOT,
        )
    assert log.read_text() == "one\ntwo\n"
    assert "probe: failed" in capsys.readouterr().err


def test_a_line_that_is_too_long_ends_after_a_word(
    environment: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = sys.modules["progress"]
    monkeypatch.setattr(progress, "HEARTBEAT_SECONDS", 0.0)
    display = progress._Display("probe")
    display.update("seven words " * 20)
    display.update("w" * 200)
    display.update("short")
    _, long, one_word, short = capsys.readouterr().err.splitlines()
    assert long.endswith((" seven …", " words …"))
    assert 80 < len(long) <= progress.LINE_COLUMNS_MAX
    assert re.fullmatch(r"probe … \d+ s …", one_word)
    assert re.fullmatch(r"probe … \d+ s short", short)
