"""Releases as container images: the one of this checkout under another version, and with a change of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.lab.container_image import CURRENT
from tests.lab.podman import Podman
from tests.lab.wheels import Change

import edgellm
from edgellm.host.archives import VERSION_LABEL

PACKAGE = "/opt/edgellm/lib/python3.11/site-packages"


class ImageReleases:
    """``base`` is the image of this checkout, which ``podman`` sees. Archives lie in ``folder``."""

    def __init__(self, podman: Podman, base: str, folder: Path) -> None:
        self._podman = podman
        self._base = base
        self._folder = folder
        folder.mkdir()

    def archive(
        self, name: str, version: str, changes: Mapping[str, Change] | None = None, *, in_one_layer: bool = False
    ) -> Path:
        """Of podman save, as the image that units ask for. ``changes`` are to files of edgellm, by name. One of one
        layer has nothing in common with what a device has: all of it is loaded."""
        context = self._folder / name
        context.mkdir()
        own = f'"{edgellm.__version__}"'
        renaming: Mapping[str, Change] = {"edgellm/__init__.py": lambda text: text.replace(own, f'"{version}"')}
        steps = [f"FROM {self._base}"]
        for number, (file, change) in enumerate({**renaming, **(changes or {})}.items()):
            before = self._podman.run_once("--entrypoint=cat", self._base, f"{PACKAGE}/{file}").stdout
            assert change(before) != before, file
            (context / str(number)).write_text(change(before))
            steps.append(f"COPY {number} {PACKAGE}/{file}")
        # What was compiled in the build is taken as it is, whatever the source says.
        compiling = f"python3 -m compileall -q -f --invalidation-mode unchecked-hash {PACKAGE}/edgellm"
        steps += ["USER 0", f"RUN {compiling}", "USER 780:780", f'LABEL {VERSION_LABEL}="{version}"']
        (context / "Containerfile").write_text("\n".join(steps) + "\n")
        built = f"localhost/edgellm-release:{name}"
        layers = ["--squash-all"] if in_one_layer else []
        options = ["--quiet", "--format=docker", "--network=none", *layers, f"--tag={built}"]
        self._podman.run("build", *options, str(context))
        self._podman.run("tag", built, CURRENT)
        archive = self._folder / f"{name}.tar"
        self._podman.run("save", "--quiet", f"--output={archive}", CURRENT)
        return archive

    def layout(self, name: str, folder: Path) -> str:
        """The release that ``archive`` made, in the new folder as registries keep it; the digest that it has there."""
        built = f"localhost/edgellm-release:{name}"
        self._podman.run("save", "--quiet", "--format=oci-dir", f"--output={folder}", built)
        (manifest,) = json.loads((folder / "index.json").read_bytes())["manifests"]
        return str(manifest["digest"])
