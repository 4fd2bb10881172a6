"""What is in the image, and what is not."""

from __future__ import annotations

import json
import platform
import tarfile
import tomllib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tests.container.conftest import Say
from tests.lab.container_image import AUTHORITY_CANARY, BASE, CHECKOUT, INDEX_CANARY
from tests.lab.podman import Podman

from edgellm.service.install.installation import USER_NUMBER

MEBIBYTE_BYTES = 1 << 20
SIZE_OVER_BASE_BYTES_MAX = 350 * MEBIBYTE_BYTES  # without a model, on a CPU


def size_bytes(podman: Podman, image: str) -> int:
    return int(podman.inspect("image", image)["Size"])


def test_it_is_small(podman: Podman, image: str, say: Say) -> None:
    history = json.loads(podman.run("history", "--no-trunc", "--format=json", image).stdout)
    for layer in reversed(history):
        if layer["size"] > MEBIBYTE_BYTES / 20:
            say(f"{layer['size'] / MEBIBYTE_BYTES:8.1f} MiB  {' '.join(layer['CreatedBy'].split())[-90:]}")
    over_base_bytes = size_bytes(podman, image) - size_bytes(podman, BASE)
    say(f"image over its base: {over_base_bytes / MEBIBYTE_BYTES:.0f} MiB")
    assert over_base_bytes <= SIZE_OVER_BASE_BYTES_MAX


def test_an_upgrade_of_edgellm_alone_is_a_small_layer(podman: Podman, image: str) -> None:
    history = json.loads(podman.run("history", "--no-trunc", "--format=json", image).stdout)
    (dependencies,) = [
        one["size"] for one in history if " /opt/edgellm" in one["CreatedBy"] and "COPY" in one["CreatedBy"]
    ]
    (product, *_) = [
        one["size"] for one in history if one["CreatedBy"].rstrip().endswith(" in / ") or " in /" in one["CreatedBy"]
    ]
    assert product < dependencies / 4


def test_it_says_what_it_is_and_how_it_is_run(podman: Podman, image: str) -> None:
    found = podman.inspect("image", image)
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    labels = {name.rpartition(".")[2]: text for name, text in found["Labels"].items() if "opencontainers" in name}
    assert (labels["title"], labels["version"], labels["licenses"]) == (
        "edgellm",
        project["version"],
        project["license"],
    )
    assert labels["revision"]
    assert datetime.fromisoformat(labels["created"]).year > 2000
    config = found["Config"]
    assert (config["User"], config["Entrypoint"], config["Cmd"]) == (
        f"{USER_NUMBER}:{USER_NUMBER}",
        ["edgellm"],
        ["serve"],
    )
    assert found["Healthcheck"]["Test"] == ["CMD", "edgellm", "health"]
    assert config["StopSignal"] in ("SIGTERM", "15")
    assert podman.run_once(image, "version").stdout.startswith(f"edgellm {project['version']}")


def test_layers_have_one_time_whatever_commit_they_are_of(podman: Podman, image: str) -> None:
    created = {one["created"] for one in json.loads(podman.run("history", "--format=json", image).stdout)}
    base = {one["created"] for one in json.loads(podman.run("history", "--format=json", BASE).stdout)}
    assert created - base == {"1980-01-01T00:00:00Z"}


def test_nothing_of_the_builder_is_in_a_layer(podman: Podman, image: str, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    podman.run("save", "--quiet", f"--output={archive}", image)
    canaries = (INDEX_CANARY.encode(), AUTHORITY_CANARY.encode())
    found = [name for name, content in everything_in(archive) if any(canary in content for canary in canaries)]
    assert found == []


def everything_in(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Metadata, and the files of all layers."""
    with tarfile.open(archive) as outer:
        for member in outer.getmembers():
            file = outer.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            if not member.name.endswith(".tar"):
                yield member.name, file.read()
                continue
            with tarfile.open(fileobj=file) as layer:
                for inner in layer:
                    content = layer.extractfile(inner) if inner.isfile() else None
                    yield f"{member.name}:{inner.name}", content.read() if content else inner.name.encode()


def test_it_has_no_compiler_and_nothing_of_the_build(podman: Podman, image: str) -> None:
    looked = "command -v g++ cc1plus cmake; ls -d /tools /run/secrets /source; ls -A /usr/lib/gcc; cat /etc/pip.conf"
    said = podman.run_once("--entrypoint=sh", image, "-c", looked, check=False).stdout.split()
    assert said == []


def test_it_has_the_program_that_downloads_models(podman: Podman, image: str) -> None:
    said = podman.run_once("--entrypoint=/opt/edgellm/bin/python", image, "-m", "pip", "--version").stdout
    assert "/opt/edgellm/lib/" in said


def test_its_bill_of_materials_names_what_is_installed(podman: Podman, image: str) -> None:
    bom = json.loads(podman.run_once("--entrypoint=cat", image, "/usr/share/edgellm/sbom.cdx.json").stdout)
    assert bom["bomFormat"] == "CycloneDX"
    listed = {component["name"].lower(): component for component in bom["components"]}
    assert {"edgellm", "numpy", "fastapi", "libc6", "python3"} <= set(listed)
    assert listed["libc6"]["purl"].startswith("pkg:deb/debian/libc6@")
    asked = "import importlib.metadata as m; print(m.version('numpy'))"
    version = podman.run_once("--entrypoint=/opt/edgellm/bin/python", image, "-c", asked).stdout.strip()
    assert listed["numpy"]["version"] == version
    # NVIDIA's runtime is for boards.
    assert [name for name in listed if "tensorrt" in name and platform.machine() == "x86_64"] == []
    assert "edgellm" not in [name for name in listed if "cyclonedx" in name]
