from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.engines.engine_key import EngineKey
from edgellm.engines.manifest import (
    MAX_FILES,
    MAX_MANIFEST_BYTES,
    FileRecord,
    Manifest,
    is_bundle_path,
    printable_text,
)
from edgellm.errors import BundleDamagedError, EdgeLLMError, ManifestVersionError

GOLDEN = Path(__file__).with_name("golden")
HEX = "0" * 64


def golden(version: int = 1) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((GOLDEN / f"manifest-{version}.json").read_text())
    return values


def parse(values: object) -> Manifest:
    return Manifest.parse(json.dumps(values).encode(), Path("manifest.json"))


def changed(*path: str, value: object = None, remove: bool = False) -> dict[str, Any]:
    values = golden()
    table = values
    for name in path[:-1]:
        table = table[name]
    if remove:
        del table[path[-1]]
    else:
        table[path[-1]] = value
    return values


def test_the_golden_manifest_of_version_1_is_read_and_written_alike() -> None:
    path = GOLDEN / "manifest-1.json"
    manifest = Manifest.read(path)
    assert manifest.model_id == "org/tiny é"
    assert manifest.source_ref == "org/tiny@main"
    assert manifest.key.inputs["profile.quantisation"] == "q8_0"
    assert manifest.files["visual/visual.engine"].size_bytes == 1 << 40
    assert manifest.size_bytes == (1 << 40) + 712
    assert manifest.log_name == "build.log"
    assert list(manifest.derived) == ["panels-avx2"]
    assert manifest.to_bytes() == path.read_bytes()


def test_what_is_written_is_read_back() -> None:
    key = EngineKey({"runtime": "native", "checkpoint": HEX, "profile.x": None, "profile.flag": True, "profile.n": -1})
    manifest = Manifest(key, "m", "2026-01-02T03:04:05Z", "native", ("llm",), {"a/b.bin": FileRecord(0, HEX)})
    assert parse(json.loads(manifest.to_bytes())) == manifest


@pytest.mark.parametrize("version", [2, 99, 10**9])
def test_a_newer_version_is_refused_by_its_number_whatever_else_it_holds(version: int) -> None:
    with pytest.raises(ManifestVersionError, match=rf"schema_version is {version}, this edgellm reads up to 1.*newer"):
        parse({"schema_version": version, "something": "new"})


@pytest.mark.parametrize("version", [0, -1, True, "1", None, 1.0])
def test_a_version_that_is_none_is_damage(version: object) -> None:
    with pytest.raises(BundleDamagedError, match="schema_version is no version number"):
        parse(changed("schema_version", value=version))


WRONG: list[tuple[tuple[str, ...], object, str]] = [
    (("model_id",), "", "model_id"),
    (("model_id",), 3, "model_id"),
    (("model_id",), "x" * 2000, "model_id"),
    (("model_id",), "line\nbreak", "model_id"),
    (("model_id",), "\ud800", "model_id"),
    (("source_ref",), 1, "source_ref"),
    (("created",), "yesterday", "created"),
    (("created",), "2026-11-29T18:00:00+01:00", "created"),
    (("platform",), [], "platform"),
    (("platform",), {"driver": 1.5}, "platform.driver"),
    (("platform",), {"a b": "x"}, "platform has a key"),
    (("components",), [], "components"),
    (("components",), ["llm", "llm"], "components names one twice"),
    (("components",), ["../llm"], "components"),
    (("needs_checkpoint",), "no", "needs_checkpoint"),
    (("builder", "name"), "onnx", "builder.name"),
    (("builder", "log"), "other.log", "builder.log"),
    (("key", "digest"), HEX, "key.digest is not the digest of key.inputs"),
    (("key", "inputs", "runtime"), "onnx", "key.inputs.runtime"),
    (("key", "inputs", "checkpoint"), None, "key.inputs.checkpoint"),
    (("key", "inputs", "profile.quantisation"), ["q8_0"], "key.inputs.profile.quantisation"),
    (("files",), {}, "files is not an object of 1 to"),
    (("files",), {"manifest.json": {"size_bytes": 1, "sha256": HEX}}, "files.manifest.json is no path"),
    (("files", "config.json", "size_bytes"), -1, "files.config.json.size_bytes"),
    (("files", "config.json", "size_bytes"), True, "files.config.json.size_bytes"),
    (("files", "config.json", "size_bytes"), 1 << 60, "files.config.json.size_bytes"),
    (("files", "config.json", "sha256"), "AB", "files.config.json.sha256"),
    (("files", "config.json", "sha256"), "A" * 64, "files.config.json.sha256"),
    (("files", "config.json", "mode"), 0o777, "files.config.json.mode is unknown"),
    (("derived",), [], "derived"),
    (("derived", "panels-avx2", "files"), {"../x": {"size_bytes": 1, "sha256": HEX}}, "derived.panels-avx2.files"),
    (("extra",), 1, "extra is unknown in this schema version"),
]


@pytest.mark.parametrize(("path", "value", "said"), WRONG)
def test_each_wrong_field_is_named(path: tuple[str, ...], value: object, said: str) -> None:
    with pytest.raises(BundleDamagedError) as refusal:
        parse(changed(*path, value=value))
    assert str(refusal.value).startswith(f"manifest.json: {said}")


def test_each_missing_field_is_named() -> None:
    def tables(values: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        found = [(*path, name) for name in values]
        for name in ("key", "builder"):
            if not path:
                found += tables(values[name], (name,))
        return found

    for path in tables(golden()):
        with pytest.raises(BundleDamagedError, match=r"is missing|is no version number"):
            parse(changed(*path, remove=True))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"schema_version": 1, "schema_version": 1}',
        b'{"schema_version": NaN}',
        b" " * (MAX_MANIFEST_BYTES + 1),
    ],
)
def test_what_is_no_manifest_is_damage(content: bytes) -> None:
    with pytest.raises(BundleDamagedError, match=r"^m\.json: "):
        Manifest.parse(content, Path("m.json"))


def test_too_many_files_are_refused() -> None:
    values = golden()
    values["files"] |= {f"f{index}": {"size_bytes": 0, "sha256": HEX} for index in range(MAX_FILES)}
    with pytest.raises(BundleDamagedError, match="files is not an object of 1 to"):
        parse(values)


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("llm.gguf", True),
        ("visual/visual.engine", True),
        ("a b/ü.json", True),
        ("..", False),
        ("../x", False),
        ("a/../x", False),
        ("a/./x", False),
        ("/etc/passwd", False),
        ("a//b", False),
        ("a/", False),
        ("", False),
        (".", False),
        ("a\\b", False),
        ("C:\\x", False),
        ("a\0b", False),
        ("a\nb", False),
        ("x" * 256, False),
        ("é" * 128, False),
        ("/".join("abcdefghi"), False),
        ("\ud800", False),
    ],
)
def test_only_plain_relative_paths_are_files_of_a_bundle(path: str, inside: bool) -> None:
    assert is_bundle_path(path) == inside


def test_text_that_cannot_be_kept_is_made_printable() -> None:
    assert printable_text("a\nb\ud800") == "a?b?"
    assert printable_text("") == "?"
    assert len(printable_text("x" * 5000)) == 1024


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_change_is_read_or_refused_by_our_own_error(data: st.DataObject) -> None:
    values = copy.deepcopy(golden())
    table: Any = values
    choose: Callable[[list[str]], str] = lambda names: data.draw(st.sampled_from(names))  # noqa: E731
    while True:
        name = choose(sorted(table))
        if isinstance(table[name], dict) and table[name] and data.draw(st.booleans()):
            table = table[name]
            continue
        table[name] = data.draw(JSON_VALUES)
        break
    try:
        manifest = parse(values)
    except EdgeLLMError:
        return
    assert parse(json.loads(manifest.to_bytes())) == manifest
