from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint

from edgellm.cli.main import main
from edgellm.engines.builder import BuildRequest
from edgellm.engines.native_builder import NativeBuilder
from edgellm.engines.resources.estimate import SPARE_MEMORY_BYTES
from edgellm.engines.source import resolve
from edgellm.engines.store import Store
from edgellm.errors import InsufficientMemoryError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("estimates") / "tiny", VARIANTS["llama"])


def explained(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["engine", "explain", *map(str, words), "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    estimates: dict[str, Any] = answer["estimates"]
    return estimates


def sizes(phase: dict[str, Any], kind: str = "memory") -> dict[str, int]:
    return {part["name"]: part["size_bytes"] for part in phase[kind]}


def test_explain_estimates_build_and_load_before_and_load_after_the_build(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (checkpoint, "--cache-dir", tmp_path, "--max-batch-size", 2, "--max-kv-cache-capacity", 512)
    before = explained(capsys, *words)
    assert [phase["phase"] for phase in before["phases"]] == ["lowering", "load"]
    assert before["available_memory_bytes"] > 0
    assert before["free_disk_bytes"] > 0
    assert main(["engine", "build", str(checkpoint), "--cache-dir", str(tmp_path)]) == 0
    after = explained(capsys, *words)
    (load,) = after["phases"]
    assert load["phase"] == "load"
    # 3 layers, 2 KV heads of 32 values in f16, keys and values; two sequences and one to keep.
    assert sizes(load)["KV pool"] == 3 * 512 * (2 * 3 * 2 * 32 * 2)
    weights = sizes(load)["weights"]
    bundle = next(tmp_path.glob("engines/*/llm.gguf"))
    assert weights == bundle.stat().st_size
    # Before the build it is known but for header and padding.
    assert sizes(before["phases"][0], "disk")["bundle"] == pytest.approx(weights, rel=0.1)
    without = {name: size for name, size in sizes(load).items() if name not in ("weights", "scratch")}
    assert {name: sizes(before["phases"][1])[name] for name in without} == without


def test_explain_shows_parts_and_what_there_is(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine", "explain", str(checkpoint), "--cache-dir", str(tmp_path / "nowhere")]) == 0
    shown = capsys.readouterr().out
    assert "  lowering: memory " in shown
    assert " MiB available" in shown
    assert " MiB free" in shown
    assert "KV pool" in shown
    assert "4 x 1024 tokens and a cache of as many as one" in shown


def test_a_build_that_does_not_fit_is_refused_before_it_begins(checkpoint: Path, tmp_path: Path) -> None:
    request = BuildRequest(resolve(str(checkpoint), tmp_path / "models"))
    estimate = NativeBuilder().plan(request).estimate
    enough = estimate.memory_bytes + SPARE_MEMORY_BYTES
    small = Store(tmp_path / "engines", (), read_available=lambda: enough - 1)
    with pytest.raises(InsufficientMemoryError, match=r"lowering needs .* edgellm engine export and import"):
        small.prepare(NativeBuilder(), request)
    assert small.entries() == []
    Store(tmp_path / "engines", (), read_available=lambda: enough).prepare(NativeBuilder(), request).close()
    # What is there needs no build, and so no memory for one.
    small.prepare(NativeBuilder(), request).close()
