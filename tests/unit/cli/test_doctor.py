"""The doctor: what TensorRT lacks here, for people and for programs, and an exit code that a service manager knows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf
from tests.unit.engines.jetson_platforms import ORIN

from edgellm.cli.main import main
from edgellm.engines.tensorrt.library_probe import Library
from edgellm.engines.tensorrt.platform_facts import PlatformFacts
from edgellm.engines.tensorrt.requirements import tensorrt_requirements
from edgellm.runtime import modules
from edgellm.service import private_ca
from edgellm.service.private_ca import PrivateCa


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    monkeypatch.setenv("EDGELLM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("EDGELLM_CONFIG", raising=False)


@pytest.fixture
def orin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlatformFacts:
    """A board that is declared one, with everything installed but what this machine's Python lacks."""
    facts = ORIN.facts(tmp_path)
    assert facts.device is not None
    monkeypatch.setenv(modules.DEVICE_FILE_VARIABLE, str(facts.device.path))  # workers read it too
    monkeypatch.setattr(modules, "platform_facts", lambda: facts)
    return facts


def test_a_machine_without_a_gpu_is_right_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "LACKING" not in out
    assert "-        TensorRT wheel" in out
    assert "pip install tensorrt-edgellm" in out


def test_an_authority_that_is_not_valid_yet_is_a_line_with_the_command_that_makes_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_ca, "CLOCK_SKEW", timedelta(days=2))
    monkeypatch.setattr(private_ca, "CA_DAYS", 3)  # it ends soon
    made = PrivateCa(tmp_path / "tls")
    init = ["tls", "init", "--folder", str(made.folder)]
    assert main(init) == 0
    file = tmp_path / "edgellm.toml"
    files = {"tls_certificate_file": made.server_certificate, "tls_key_file": made.server_key}
    file.write_text("[server]\n" + "".join(f'{key} = "{path}"\n' for key, path in files.items()))

    def findings() -> list[str]:
        capsys.readouterr()
        main(["doctor", "--json", "--config", str(file)])
        found = json.loads(capsys.readouterr().out)["findings"]
        return [one["text"] for one in found if one["subject"] == "certificate" and not one["right"]]

    assert any(f"the authority {made.ca_certificate} ends on" in text for text in findings())
    monkeypatch.setattr(private_ca, "CLOCK_SKEW", timedelta(days=-400))
    monkeypatch.setattr(private_ca, "CA_DAYS", 3_650)
    made._make_ca("board")
    (text,) = [text for text in findings() if "the authority" in text]
    assert "is not valid before" in text
    assert "sudo edgellm tls init --new-authority makes another" in text
    monkeypatch.setattr(private_ca, "CLOCK_SKEW", timedelta(days=1))
    assert main(init) == 78
    assert "give --new-authority" in capsys.readouterr().err
    assert main([*init, "--new-authority"]) == 0
    said = capsys.readouterr().out
    assert f"made the authority {made.ca_certificate}" in said
    assert "clients that trust the earlier authority are to be paired again" in said
    assert findings() == []


def test_every_requirement_is_listed_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["right"] is True
    names = [entry["subject"] for entry in report["findings"] if entry["subject"].startswith("TensorRT ")]
    listed = [f"TensorRT {requirement.name}" for requirement in tensorrt_requirements(modules.platform_facts())]
    assert names == listed
    for entry in report["findings"]:
        assert set(entry) == {"subject", "right", "text", "needed", "remedy"}


def test_a_declared_jetson_that_cannot_use_its_gpu_ends_with_a_code_of_its_own(
    orin: PlatformFacts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json"]) == 68
    report = json.loads(capsys.readouterr().out)
    assert report["right"] is False
    lacking = {
        entry["subject"]: entry["text"] for entry in report["findings"] if not entry["right"] and entry["needed"]
    }
    # Its facts are whole; what cannot be loaded here is NVIDIA's module itself.
    assert set(lacking) == {"runtime"}
    assert "declares a Jetson (Orin NX 16GB), and TensorRT Edge-LLM cannot run here" in lacking["runtime"]


def test_each_missing_piece_of_a_board_is_a_line_with_its_remedy(
    orin: PlatformFacts, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = replace(orin, libraries=replace(orin.libraries, driver=Library(problem="no libcuda")), wheel_version="")
    monkeypatch.setattr(modules, "platform_facts", lambda: lacking)
    assert main(["doctor"]) == 68
    lines = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines() if line.startswith("LACKING")]
    assert [words[2] for words in lines if words[1] == "TensorRT"] == ["driver", "wheel"]
    assert all(" — " in words[3] for words in lines if words[1] == "TensorRT")


@pytest.mark.parametrize("arguments", [["serve", "--port", "0"], ["chat", "hello", "--local"]])
def test_a_declared_jetson_never_answers_on_the_cpu_unasked(
    arguments: list[str], orin: PlatformFacts, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = write_gguf(tmp_path / "tiny.gguf", VARIANTS["llama"])
    assert main([*arguments, str(model)]) == 68
    assert "declares a Jetson (Orin NX 16GB), and TensorRT" in capsys.readouterr().err
