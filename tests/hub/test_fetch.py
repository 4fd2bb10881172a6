"""What is fetched, where it goes, and what a second look costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from tests.hub.hub_server import KNOWN_USER, STRANGER, HubServer
from tests.models.pooling import write_pooling

from edgellm.engines.checkpoint import Checkpoint
from edgellm.engines.checkpoint_digest import checkpoint_digest
from edgellm.engines.embedding_output import embedding_output
from edgellm.engines.hub.hub_id import HubId
from edgellm.engines.hub.removal import remove_model
from edgellm.engines.progress import Progress
from edgellm.engines.source import SourceKind, fetch, resolve

ID = "tiny-org/tiny-model"


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_server_is_a_hub_to_the_library_itself(
    hub: HubServer, checkpoint_files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.repository(ID, checkpoint_files)
    folder = Path(snapshot_download(ID, endpoint=hub.url, cache_dir=tmp_path / "cache", token=False))
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == checkpoint_files


def test_an_id_is_fetched_and_is_a_checkpoint(
    hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path
) -> None:
    commit = hub.repository(ID, checkpoint_files).revisions["main"]
    source = resolve(ID, models_dir)
    assert (source.kind, source.model_id, source.source_ref) == (SourceKind.SAFETENSORS, ID, f"{ID}@main")
    assert source.path.name == commit
    checkpoint = Checkpoint(source.path)
    assert checkpoint.tensors
    assert checkpoint_digest(source.path) == source.digest
    for path in source.path.iterdir():
        assert path.read_bytes() == checkpoint_files[path.name]
        assert not path.is_symlink()


def test_only_what_a_model_needs_is_fetched(
    hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path
) -> None:
    hub.repository(ID, checkpoint_files)
    names = names_in(resolve(ID, models_dir).path)
    beside = {".gitattributes", "README.md", "consolidated.safetensors", "figures/benchmark.png"}
    assert names == set(checkpoint_files) - beside - {"pytorch_model.bin", "pytorch_model.bin.index.json"}
    assert not hub.saw("consolidated|pytorch_model|README|png|gitattributes")


def test_how_a_model_embeds_is_fetched_with_it(
    hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path, tmp_path: Path
) -> None:
    size = json.loads(checkpoint_files["config.json"])["hidden_size"]
    pooling = write_pooling(tmp_path, size)
    listed = {name: (pooling / name).read_bytes() for name in ("modules.json", "1_Pooling/config.json")}
    beside = {"1_Pooling/README.md": b"#", "2_Dense/config.json": b"{}", "onnx/config.json": b"{}"}
    hub.repository(ID, {**checkpoint_files, **listed, **beside})
    source = resolve(ID, models_dir)
    assert {name: (source.path / name).read_bytes() for name in listed} == listed
    assert not names_in(source.path) & set(beside)
    assert embedding_output(source).size == size


def test_a_model_that_is_here_asks_no_hub(hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path) -> None:
    hub.repository(ID, checkpoint_files)
    first = resolve(ID, models_dir)
    asked = len(hub.requests)
    assert resolve(ID, models_dir) == first
    assert resolve(ID, models_dir, download=False) == first
    assert len(hub.requests) == asked


def test_an_id_stays_at_its_commit_until_it_is_fetched_again(
    hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path
) -> None:
    repository = hub.repository(ID, checkpoint_files)
    first = resolve(ID, models_dir)
    config = {**json.loads(checkpoint_files["config.json"]), "rope_theta": 20000.0}
    newer = repository.commit({**checkpoint_files, "config.json": json.dumps(config).encode()})
    assert resolve(ID, models_dir) == first
    sent = hub.sent_bytes
    second = fetch(HubId(ID), models_dir)
    assert second.path.name == newer
    assert second.reference.checkpoint_digest != first.digest
    # Only what changed travelled again: the listing and the small file.
    assert hub.sent_bytes - sent < 20_000 < sum(map(len, checkpoint_files.values()))
    assert resolve(ID, models_dir).path == second.path
    assert resolve(f"{ID}@{first.path.name}", models_dir).digest == first.digest


@pytest.mark.parametrize("revision", ["v1.0", "branch/of-somebody", "refs/pr/3"])
def test_a_revision_is_followed(
    hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path, revision: str
) -> None:
    repository = hub.repository(ID, checkpoint_files)
    other = repository.commit({**checkpoint_files, "generation_config.json": b'{"top_k": 7}'}, revision)
    source = resolve(f"{ID}@{revision}", models_dir)
    assert (source.path.name, source.model_id, source.source_ref) == (other, ID, f"{ID}@{revision}")
    assert resolve(f"{ID}@{other}", models_dir).path == source.path
    assert resolve(ID, models_dir).path != source.path


def test_a_gguf_file_is_fetched_alone(hub: HubServer, gguf_bytes: bytes, models_dir: Path) -> None:
    files = {
        "README.md": b"#",
        "tiny-Q8_0.gguf": gguf_bytes,
        "tiny-Q4_0.gguf": gguf_bytes[::-1],
        "mmproj-tiny-F16.gguf": b"GGUF" * 900,
    }
    hub.repository(ID, files)
    for spelling in ("Q8_0", "q8_0", "tiny-Q8_0.gguf", "tiny-Q8_0"):
        source = resolve(f"{ID}:{spelling}", models_dir)
        assert (source.kind, source.path.name) == (SourceKind.GGUF, "tiny-Q8_0.gguf")
        assert source.path.read_bytes() == gguf_bytes
        assert source.model_id == f"{ID}:{spelling}"
    assert not hub.saw("Q4_0|mmproj|README")


def test_the_only_gguf_file_needs_no_choice(hub: HubServer, gguf_bytes: bytes, models_dir: Path) -> None:
    hub.repository(ID, {"README.md": b"#", "tiny-Q8_0.gguf": gguf_bytes, "mmproj-tiny-F16.gguf": b"GGUF" * 900})
    assert resolve(ID, models_dir).path.read_bytes() == gguf_bytes


def test_progress_ends_at_its_total(hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path) -> None:
    hub.repository(ID, checkpoint_files)
    seen: list[Progress] = []
    resolve(ID, models_dir, on_progress=seen.append)
    steps = [progress for progress in seen if progress.stage == "download" and progress.total_bytes]
    assert [step.done_bytes for step in steps] == sorted(step.done_bytes for step in steps)
    fetched = sum(path.stat().st_size for path in resolve(ID, models_dir).path.iterdir())
    assert steps[-1].done_bytes == steps[-1].total_bytes == fetched


def test_large_files_come_from_their_own_host_without_the_token(
    hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repository(ID, checkpoint_files, private=True)
    monkeypatch.setenv("HF_TOKEN", KNOWN_USER)
    resolve(ID, models_dir)
    large = [seen for seen in hub.requests if seen.host.startswith("localhost")]
    assert large
    assert {seen.token for seen in large} == {""}
    assert {seen.token for seen in hub.requests if seen not in large} == {KNOWN_USER}


def test_a_token_comes_from_a_file_too(
    hub: HubServer,
    checkpoint_files: dict[str, bytes],
    models_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    hub.repository(ID, checkpoint_files, gated=True)
    (tmp_path / "token").write_text(f"{KNOWN_USER}\n")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    assert resolve(ID, models_dir).path.is_dir()


@pytest.mark.parametrize("blank", ["HF_TOKEN", "HF_TOKEN_PATH", "the library's"])
def test_a_token_comes_from_the_service_s_credentials_too(
    hub: HubServer,
    checkpoint_files: dict[str, bytes],
    models_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    blank: str,
) -> None:
    """Behind what the environment says, and before the user's own."""
    hub.repository(ID, checkpoint_files, gated=True)
    (tmp_path / "hub-token").write_text(f"{KNOWN_USER}\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    if blank.startswith("HF_"):
        monkeypatch.setenv(blank, "")
    else:
        (tmp_path / "hf-home").mkdir(exist_ok=True)
        (tmp_path / "hf-home/token").write_text(STRANGER)
    assert resolve(ID, models_dir).path.is_dir()
    assert {seen.token for seen in hub.saw("/api/models")} == {KNOWN_USER}


def test_a_removed_model_frees_what_no_other_needs(
    hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path
) -> None:
    repository = hub.repository(ID, checkpoint_files)
    repository.commit({**checkpoint_files, "generation_config.json": b'{"top_k": 7}'}, "v2")
    first, second = resolve(ID, models_dir), resolve(f"{ID}@v2", models_dir)
    kept = {path.name: path.read_bytes() for path in second.path.iterdir()}
    freed = remove_model(HubId(ID), models_dir)
    assert freed == len(checkpoint_files["generation_config.json"])
    assert not first.path.exists()
    assert resolve(f"{ID}@v2", models_dir, download=False) == second
    assert {path.name: path.read_bytes() for path in second.path.iterdir()} == kept
    assert remove_model(HubId(ID), models_dir) is None
    freed = remove_model(HubId(ID, revision="v2"), models_dir)
    assert freed == sum(map(len, kept.values()))
    assert names_in(models_dir / "hub") == {"tiny-org--tiny-model/.lock"}
    assert resolve(ID, models_dir).path == first.path


def test_an_update_and_a_removal_of_the_old_commit_leave_the_new_one(
    hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path
) -> None:
    repository = hub.repository(ID, checkpoint_files)
    old = resolve(ID, models_dir)
    pinned = resolve(f"{ID}@{old.path.name}", models_dir)
    repository.commit({**checkpoint_files, "generation_config.json": b'{"top_k": 7}'})
    new = fetch(HubId(ID), models_dir)
    assert pinned.path.exists()
    assert remove_model(HubId(ID, revision=old.path.name), models_dir)
    assert not pinned.path.exists()
    assert resolve(ID, models_dir, download=False).path == new.path


def test_files_that_leave_their_folder_are_not_fetched(
    hub: HubServer, checkpoint_files: dict[str, bytes], models_dir: Path
) -> None:
    hub.repository(
        ID, {**checkpoint_files, "../escaped.json": b"{}", "a/../../escaped.json": b"{}", "/etc/x.json": b"1"}
    )
    source = resolve(ID, models_dir)
    assert not hub.saw("escaped|etc")
    assert not list(models_dir.parent.rglob("escaped.json"))
    assert source.path.is_dir()
