from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgellm.engines.hub.hub_id import HubId, parse_hub_id
from edgellm.engines.references import (
    Reference,
    all_references,
    find_reference,
    read_reference,
    reference_name,
    write_reference,
)
from edgellm.engines.source import SourceKind, resolve
from edgellm.errors import BundleDamagedError, ManifestVersionError, ModelSourceError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DIGEST = "ab" * 32
REFERENCE = Reference(HubId("Org/Name"), COMMIT, "safetensors", "", DIGEST)
GGUF = Reference(HubId("Org/Name-GGUF", "Q4_0", "refs/pr/1"), COMMIT, "gguf", "name-Q4_0.gguf", DIGEST)
GOLDEN = Path(__file__).parent / "golden" / "reference-1.json"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Qwen/Qwen3-0.6B", HubId("Qwen/Qwen3-0.6B")),
        ("a/b@v1.0", HubId("a/b", revision="v1.0")),
        ("a/b@refs/pr/7", HubId("a/b", revision="refs/pr/7")),
        ("a/b:Q4_K_M", HubId("a/b", "Q4_K_M")),
        ("a/b:c.gguf@main", HubId("a/b", "c.gguf")),
    ],
)
def test_an_id_has_repository_file_and_revision(text: str, expected: HubId) -> None:
    assert parse_hub_id(text) == expected
    assert parse_hub_id(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    ["a", "a/b/c", "/a/b", "./a/b", "../b", "a/..", "a/b@", "a/b@../x", "a/b:", "a/b:x/y", "a--b/c", "a/b c", "a/b@-x"],
)
def test_what_is_no_id_is_none(text: str) -> None:
    assert parse_hub_id(text) is None


@pytest.mark.parametrize("reference", [REFERENCE, GGUF])
def test_a_reference_is_found_as_it_was_written(tmp_path: Path, reference: Reference) -> None:
    write_reference(tmp_path, reference)
    assert find_reference(reference.hub_id, [tmp_path / "empty", tmp_path]) == reference
    assert list(all_references(tmp_path)) == [reference]
    assert [path.name for path in (tmp_path / "refs").iterdir()] == [reference_name(reference.hub_id)]


def test_a_later_reference_takes_the_place_of_the_earlier(tmp_path: Path) -> None:
    newer = Reference(REFERENCE.hub_id, COMMIT[::-1], "safetensors", "", DIGEST[::-1])
    write_reference(tmp_path, REFERENCE)
    write_reference(tmp_path, newer)
    assert find_reference(REFERENCE.hub_id, [tmp_path]) == newer


def test_the_first_folder_counts(tmp_path: Path) -> None:
    other = Reference(REFERENCE.hub_id, COMMIT[::-1], "safetensors", "", DIGEST)
    write_reference(tmp_path / "image", other)
    write_reference(tmp_path / "cache", REFERENCE)
    assert find_reference(REFERENCE.hub_id, [tmp_path / "image", tmp_path / "cache"]) == other


def test_ids_that_look_alike_have_files_of_their_own() -> None:
    ids = ["a/b", "a/b-c", "a-b/c", "a/b:c", "a/b@c", "a/b@c/d", "a/b@c%2Fd"]
    names = [reference_name(hub_id) for text in ids if (hub_id := parse_hub_id(text)) is not None]
    assert len(names) == len(set(names)) == 6
    assert not any("/" in name for name in names)


def test_references_of_version_1_stay_readable() -> None:
    assert read_reference(GOLDEN) == GGUF
    assert json.loads(GGUF.to_json()) == json.loads(GOLDEN.read_text())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema_version", 0),
        ("schema_version", True),
        ("repository", "../../etc"),
        ("repository", 7),
        ("file", "../x"),
        ("revision", ""),
        ("commit", "main"),
        ("commit", None),
        ("kind", "onnx"),
        ("gguf_name", "a/b"),
        ("gguf_name", ""),
        ("checkpoint_digest", "x" * 64),
    ],
)
def test_a_damaged_reference_names_its_field(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "reference.json"
    path.write_text(json.dumps({**json.loads(GGUF.to_json()), name: value}))
    with pytest.raises(BundleDamagedError, match=rf"reference.json: ({name}|repository) .*remove the file"):
        read_reference(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"'])
def test_what_is_no_reference_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "reference.json"
    path.write_text(text)
    with pytest.raises(BundleDamagedError, match="fetch the model again"):
        read_reference(path)


def test_a_reference_of_a_newer_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "reference.json"
    path.write_text(json.dumps({**json.loads(GGUF.to_json()), "schema_version": 2, "more": 1}))
    with pytest.raises(ManifestVersionError, match="newer than the 1 that this edgellm reads — upgrade it"):
        read_reference(path)


def test_a_read_only_root_resolves_an_id_without_a_hub(checkpoint_copy: Path, tmp_path: Path) -> None:
    root = tmp_path / "image"
    write_reference(root, REFERENCE)
    (root / "checkpoints").mkdir()
    checkpoint_copy.rename(root / "checkpoints" / DIGEST)
    with pytest.raises(ModelSourceError):
        resolve("Org/Name", tmp_path / "models", download=False)
    source = resolve("Org/Name", tmp_path / "models", roots=[root], download=False)
    assert (source.kind, source.model_id, source.digest) == (SourceKind.SAFETENSORS, "Org/Name", DIGEST)
    assert source.path == root / "checkpoints" / DIGEST


def test_an_id_without_its_checkpoint_still_has_its_digest(tmp_path: Path) -> None:
    write_reference(tmp_path / "image", GGUF)
    source = resolve("Org/Name-GGUF:Q4_0@refs/pr/1", tmp_path / "models", roots=[tmp_path / "image"], download=False)
    assert (source.kind, source.digest, source.path.exists()) == (SourceKind.GGUF, DIGEST, False)
