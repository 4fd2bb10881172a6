"""Archives of container images, whole in form and with nothing to run in them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from edgellm.host.archives import VERSION_LABEL


def image_configuration(architecture: str, version: str | None) -> bytes:
    labels = {} if version is None else {VERSION_LABEL: version}
    return json.dumps({"architecture": architecture, "os": "linux", "config": {"Labels": labels}}).encode()


def container_archive(path: Path, *, architecture: str = "arm64", version: str | None = "0.1.0") -> Path:
    """As podman save writes it; the same bytes each time. ``architecture`` as images have it."""
    configuration = image_configuration(architecture, version)
    name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": ["localhost/edgellm:current"], "Layers": []}]
    return write_tar(path, {name: configuration, "manifest.json": json.dumps(manifest).encode()})


def open_container_archive(path: Path, *, architecture: str, version: str) -> Path:
    """As podman save --format oci-archive writes it."""
    configuration = image_configuration(architecture, version)
    manifest = json.dumps({"config": {"digest": _digest(configuration)}, "layers": []}).encode()
    index = json.dumps({"manifests": [{"digest": _digest(manifest)}]}).encode()
    blobs = {f"blobs/{_digest(blob).replace(':', '/')}": blob for blob in (configuration, manifest)}
    return write_tar(path, {**blobs, "index.json": index})


def write_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"
