"""Archives of images and engines, read without podman: which they are, and what is none of them."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest
import zstandard
from tests.image.container_archives import container_archive, image_configuration, open_container_archive, write_tar
from tests.image.engine_archives import engine_archive

from edgellm.errors import ReleaseSourceError
from edgellm.host.archives import ZSTD_BEGINNING, ImageArchive, require_engine_archive


def test_version_and_architecture_are_read_from_every_form(tmp_path: Path) -> None:
    digest = hashlib.sha256(image_configuration("arm64", "1.2.0")).hexdigest()
    expected = ImageArchive("1.2.0", "aarch64", digest)
    plain = container_archive(tmp_path / "plain.tar", architecture="arm64", version="1.2.0")
    assert ImageArchive.read(plain) == expected
    compressed = tmp_path / "image.tar.gz"
    compressed.write_bytes(gzip.compress(plain.read_bytes()))
    assert ImageArchive.read(compressed) == expected
    assert (
        ImageArchive.read(open_container_archive(tmp_path / "oci", architecture="arm64", version="1.2.0")) == expected
    )
    of_a_pc = container_archive(tmp_path / "pc.tar", architecture="amd64", version="1.2.0")
    assert ImageArchive.read(of_a_pc).architecture == "x86_64"


def test_what_is_no_archive_of_one_image_of_edgellm_is_named(tmp_path: Path) -> None:
    path = tmp_path / "edgellm.tar"
    two = json.dumps([{"Config": "a.json"}, {"Config": "b.json"}]).encode()
    for content, said in (
        (b"no archive", "is no container image's archive"),
        (b"", "is no container image's archive"),
        (gzip.compress(b"x" * 100_000)[:60], "is no container image's archive"),
        (ZSTD_BEGINNING + b"x" * 100, "is compressed with zstd"),
        (write_tar(tmp_path / "1", {"manifest.json": b"[{}]"}).read_bytes(), "is no container image's archive"),
        (write_tar(tmp_path / "2", {"index.json": b"[]"}).read_bytes(), "is no container image's archive"),
        (write_tar(tmp_path / "3", {"manifest.json": two}).read_bytes(), "holds 2 images, not one"),
        (container_archive(tmp_path / "4", version=None).read_bytes(), "holds no image of edgellm: it lacks the label"),
        (container_archive(tmp_path / "5").read_bytes()[:700], "is no container image's archive"),
    ):
        path.write_bytes(content)
        with pytest.raises(ReleaseSourceError, match=said) as refused:
            ImageArchive.read(path)
        assert str(path) in str(refused.value)
    with pytest.raises(ReleaseSourceError, match="Is a directory"):
        ImageArchive.read(tmp_path)


def test_what_is_no_engine_is_named(tmp_path: Path) -> None:
    path = engine_archive(tmp_path / "engine.tar.zst")
    require_engine_archive(path)
    whole = path.read_bytes()
    other_tar = write_tar(tmp_path / "other", {"manifest.json": b"{}", "blobs": b""}).read_bytes()
    for content in (b"", b"engine", ZSTD_BEGINNING + b"engine", whole[:20], zstandard.compress(b"no tar"), other_tar):
        path.write_bytes(zstandard.compress(content) if content is other_tar else content)
        with pytest.raises(ReleaseSourceError, match=r"engine\.tar\.zst is no engine's archive — make one with"):
            require_engine_archive(path)
