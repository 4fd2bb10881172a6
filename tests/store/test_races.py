"""Several processes over one store: one builds, all use it; eviction never takes what is held."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.store.conftest import StartStore, visible


@pytest.mark.parametrize("count", [2, 8])
def test_racing_processes_build_once(
    start: StartStore, slow_checkpoint: Path, cache: Path, tmp_path: Path, count: int
) -> None:
    """Half of them with a copy of the checkpoint, which is the same checkpoint."""
    copy = Path(shutil.copytree(slow_checkpoint, tmp_path / "copy"))
    racers = [start((slow_checkpoint, copy)[index % 2], cache, "--wait") for index in range(count)]
    for racer in racers:
        racer.until("waiting")
    for racer in racers:
        racer.go()
    lines = [racer.end() for racer in racers]
    folders = {entry["leased"] for racer in lines for entry in racer if "leased" in entry}
    published = [entry for racer in lines for entry in racer if entry.get("stage") == "publish"]
    assert len(folders) == 1
    assert len(published) == 1
    assert [racer.process.returncode for racer in racers] == [0] * count
    assert visible(cache) == [Path(folder).name for folder in folders]


def test_eviction_racing_loads_never_takes_a_held_bundle(start: StartStore, small_gguf: Path, cache: Path) -> None:
    pruner = start(small_gguf, cache, "--prune-until-end")
    loaders = [start(small_gguf, cache, "--loads", "6") for _ in range(3)]
    for loader in loaders:
        lines = loader.end()
        assert [entry for entry in lines if "problems" in entry or "error" in entry] == []
        assert "leased" in lines[-1]
        assert loader.process.returncode == 0
    assert pruner.end()[-1]["removed"] > 0
    assert [name for name in visible(cache) if name.startswith(".staging")] == []
