"""References: ``id@revision → digest``, one small file each, so that a board resolves a hub's id without a hub.

Files lie below ``refs/`` of the models folder, and of read-only roots that an image brings. A reference is written
after its model is complete, so what it names was there; an id stays at its commit until it is fetched again.

    schema_version      1
    repository          "ORG/NAME"
    file                what the id says after ":", or ""
    revision            branch, tag or commit
    commit              40 hexadecimal digits
    kind                "safetensors", "gguf" or "whisper"
    gguf_name           the file's name in the repository, or ""
    checkpoint_digest   64 hexadecimal digits: the input of every engine key
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from edgellm.engines.hub.hub_id import COMMIT, HubId, parse_hub_id
from edgellm.engines.hub.layout import folder_name
from edgellm.engines.json_file import read_object
from edgellm.errors import BundleDamagedError, CheckpointError, ManifestVersionError

REFS_FOLDER = "refs"
SCHEMA_VERSION = 1
MAX_REFERENCE_BYTES = 16 << 10
KINDS = ("safetensors", "gguf", "whisper")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = ("repository", "file", "revision", "commit", "kind", "gguf_name", "checkpoint_digest")


@dataclass(frozen=True, slots=True)
class Reference:
    hub_id: HubId
    commit: str
    kind: str
    gguf_name: str
    checkpoint_digest: str

    def to_json(self) -> str:
        values = {
            "schema_version": SCHEMA_VERSION,
            "repository": self.hub_id.repository,
            "file": self.hub_id.file,
            "revision": self.hub_id.revision,
            "commit": self.commit,
            "kind": self.kind,
            "gguf_name": self.gguf_name,
            "checkpoint_digest": self.checkpoint_digest,
        }
        return json.dumps(values, indent=2) + "\n"


def reference_name(hub_id: HubId) -> str:
    """The file's name: no part of an id can leave the folder."""
    file = f"+{hub_id.file}" if hub_id.file else ""
    return f"{folder_name(hub_id.repository)}{file}@{quote(hub_id.revision, safe='')}.json"


def find_reference(hub_id: HubId, folders: Iterable[Path]) -> Reference | None:
    """The first that ``folders`` have; they are what holds a ``refs`` folder."""
    for folder in folders:
        path = folder / REFS_FOLDER / reference_name(hub_id)
        if path.is_file():
            return read_reference(path)
    return None


def all_references(folder: Path) -> Iterator[Reference]:
    """Every readable reference of ``folder``, in order of names; damaged ones are left out."""
    try:
        paths = sorted((folder / REFS_FOLDER).glob("*.json"))
    except OSError:
        return
    for path in paths:
        try:
            yield read_reference(path)
        except (BundleDamagedError, ManifestVersionError):
            continue


def read_reference(path: Path) -> Reference:
    """Raises BundleDamagedError naming file and field, ManifestVersionError for one of a newer edgellm."""
    try:
        values = read_object(path, MAX_REFERENCE_BYTES)
    except CheckpointError as error:
        raise BundleDamagedError(f"{error} — remove the file and fetch the model again") from None
    return parse_reference(path, values)


def parse_reference(path: Path, values: dict[str, object]) -> Reference:
    """``path`` names the file in errors."""
    version = values.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        raise ManifestVersionError(
            f"{path}: schema_version {version} is newer than the {SCHEMA_VERSION} that this edgellm reads — upgrade it"
        )
    texts: dict[str, str] = {}
    for name in _FIELDS:
        value = values.get(name)
        if not isinstance(value, str):
            raise BundleDamagedError(f"{path}: {name} is not a text — remove the file and fetch the model again")
        texts[name] = value
    file, revision = texts["file"], texts["revision"]
    hub_id = parse_hub_id(f"{texts['repository']}{f':{file}' if file else ''}@{revision}")
    gguf_name = texts["gguf_name"]
    checks = {
        "schema_version": version == SCHEMA_VERSION and not isinstance(version, bool),
        "repository": hub_id == HubId(texts["repository"], file, revision),
        "commit": COMMIT.fullmatch(texts["commit"]) is not None,
        "kind": texts["kind"] in KINDS,
        "gguf_name": (texts["kind"] == "gguf") == bool(gguf_name) and "/" not in gguf_name and gguf_name != "..",
        "checkpoint_digest": _DIGEST.fullmatch(texts["checkpoint_digest"]) is not None,
    }
    wrong = [name for name, is_right in checks.items() if not is_right]
    if hub_id is None or wrong:
        name = wrong[0] if wrong else "repository"
        raise BundleDamagedError(f"{path}: {name} is not valid — remove the file and fetch the model again")
    return Reference(hub_id, texts["commit"], texts["kind"], gguf_name, texts["checkpoint_digest"])


def write_reference(folder: Path, reference: Reference) -> None:
    """Publish whole or not at all, in the place of an earlier one. Raises OSError."""
    refs = folder / REFS_FOLDER
    refs.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".", dir=refs)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(reference.to_json())
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        temporary.rename(refs / reference_name(reference.hub_id))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
