"""Folders of bundles with engines and models in them, as far as an upgrade reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from edgellm.host.bundle_maker import manifest_text
from edgellm.host.bundle_manifest import MANIFEST, BundleFile, BundleManifest

MODEL = "models/small/small.gguf"
ENGINE = "engines/small.tar.zst"


def bundle_of(folder: Path, files: Mapping[str, bytes]) -> Path:
    described = {}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        described[name] = BundleFile(len(content), hashlib.sha256(content).hexdigest())
    manifest = BundleManifest("1.1", "any", None, described)
    (folder / MANIFEST).write_text(manifest_text(manifest))
    return folder
