"""The image built from nothing: with no layer, no module and no package of an earlier build."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.container.conftest import Say
from tests.container.running import running
from tests.lab.container_image import CURRENT, BuiltImage, build
from tests.lab.podman import Podman


@pytest.fixture
def empty_store(container_image: BuiltImage, tmp_path: Path) -> Iterator[Podman]:
    """It sees the base image alone: what was built before is not taken."""
    made = Podman(tmp_path / "store", container_image.images)
    yield made
    made.remove()


@pytest.mark.long
def test_a_build_without_caches_compiles_the_module_for_the_base_s_python(
    empty_store: Podman, model_folder: Path, tmp_path: Path, say: Say
) -> None:
    began = time.monotonic()
    said = build(empty_store, "--no-cache", native=None)
    say(f"build from nothing: {time.monotonic() - began:.0f} s")
    assert "Using cache" not in said
    asked = (
        "import importlib.util, sysconfig; print(importlib.util.find_spec('edgellm._native').origin"
        ".endswith(sysconfig.get_config_var('EXT_SUFFIX')))"
    )
    run = ("--entrypoint=/opt/edgellm/bin/python", CURRENT, "-c", asked)
    assert empty_store.run_once(*run).stdout.strip() == "True"
    with running(empty_store, CURRENT, "edgellm-from-nothing", tmp_path / "edgellm", model_folder) as server:
        assert server.is_ready()
