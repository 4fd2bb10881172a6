"""The offline bundle: the same bytes each time, and not one of them can be changed unnoticed."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.image.another_day import UMASK, on_another_day
from tests.image.container_archives import container_archive, write_tar
from tests.image.engine_archives import engine_archive

from edgellm.errors import EdgeLLMError, ReleaseSourceError, ReleaseUntrustedError
from edgellm.host.bundle_maker import write_archive
from edgellm.host.bundle_manifest import read_manifest
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind
from edgellm.host.source import open_source

ARCHITECTURE_OF_IMAGES = {"x86_64": "amd64", "aarch64": "arm64"}
BUNDLE = Path(__file__).resolve().parents[3] / "image/bundle"


def make_inputs(folder: Path) -> list[str]:
    """A bundle's options, with something of every kind."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    for name, version in (("edgellm", "0.2.0"), ("library", "1.0")):
        with zipfile.ZipFile(wheels / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nLicense-Expression: MIT\n\n"
            archive.writestr(zipfile.ZipInfo(f"{name}-{version}.dist-info/METADATA"), metadata)
    container_archive(folder / "image.oci", architecture=ARCHITECTURE_OF_IMAGES[platform.machine()], version="0.2.0")
    engine_archive(folder / "engine.tar.zst")
    (folder / "model").mkdir()
    (folder / "model/model.gguf").write_bytes(b"GGUF" * 1000)
    (folder / "collection").mkdir()
    (folder / "collection/galaxy.yml").write_text("namespace: edgellm\nname: appliance\n")
    # What tools keep beside it is no part of it.
    for name in ("collection/.ansible-lint", "collection/.cache/a b", "model/.lock", "model/model.gguf.lock"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    (folder / "edgellm.toml").write_text("[server]\nport = 8000\n")
    return [
        *("--wheels", str(wheels), "--image-archive", str(folder / "image.oci")),
        *("--engine", str(folder / "engine.tar.zst"), "--model", str(folder / "model")),
        *("--collection", str(folder / "collection"), "--config", str(folder / "edgellm.toml")),
        *("--floor", "0.1.0"),
    ]


def run_bundle(
    *arguments: str, folder: Path = Path("/"), another_day: bool = False, **environ: str
) -> subprocess.CompletedProcess[str]:
    # -S: as on a machine that nothing was set up on.
    kept = {name: value for name, value in os.environ.items() if name not in ("SSH_AUTH_SOCK", "SSH_ASKPASS")}
    command = on_another_day(BUNDLE, "-S") if another_day else [sys.executable, "-S", str(BUNDLE)]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**kept, **environ},
        umask=UMASK if another_day else -1,
    )


def run_build(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", str(BUNDLE.with_name("build")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, options: list[str], signing_key: Path) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "bundle"
    made = run_bundle(str(folder), *options, "--sign", str(signing_key))
    assert made.returncode == 0, made.stderr
    assert "edgellm 0.2.0, signed; verified in" in made.stdout
    return folder


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "bundle"))


@pytest.fixture
def paths(tmp_path: Path, signing_key: Path) -> HostPaths:
    """A host that trusts the key."""
    host = HostPaths(tmp_path / "host")
    host.trusted_keys.mkdir(parents=True)
    shutil.copy(f"{signing_key}.pub", host.trusted_keys / "publisher.pub")
    return host


def verify(bundle: Path, key: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(bundle / "install.sh"), "--verify-only", "--key", f"{key}.pub"],
        capture_output=True,
        text=True,
        check=False,
    )


def bytes_of(folder: Path) -> dict[str, tuple[int, float, bytes]]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mode, path.stat().st_mtime, path.read_bytes())
        for path in found
    }


def test_the_same_inputs_give_the_same_bytes(whole: Path, tmp_path: Path, signing_key: Path) -> None:
    """On another day too, by another time zone, umask and order of dictionaries."""
    options = make_inputs(tmp_path / "again")
    archives = []
    strange = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    for name, another_day, environ in (("one", False, {}), ("two", True, strange)):
        archive = tmp_path / name / "bundle.tar"
        archive.parent.mkdir()
        wanted = (str(archive.parent / "bundle"), *options, "--sign", str(signing_key), "--archive", str(archive))
        made = run_bundle(*wanted, another_day=another_day, **environ)
        assert made.returncode == 0, made.stderr
        assert bytes_of(tmp_path / name / "bundle") == bytes_of(whole)
        archives.append(archive.read_bytes())
        for path in (tmp_path / "again").rglob("*"):
            os.utime(path, (time.time() - 10**7,) * 2)
            path.chmod(0o700)
    assert archives[0] == archives[1]


@pytest.mark.parametrize("kind", Kind)
def test_one_that_is_still_packed_is_said_to_be(tmp_path: Path, whole: Path, paths: HostPaths, kind: Kind) -> None:
    packed = tmp_path / "bundle.tar"
    write_archive(whole, packed)
    with pytest.raises(ReleaseSourceError, match=rf"is a bundle in one file — unpack it \(tar -xf {packed}\)"):
        open_source(str(packed), kind, paths)


def test_it_has_everything_and_says_so(whole: Path) -> None:
    assert set(read_manifest(whole).files) == {
        *("install.sh", "host.pyz", "image.tar", "edgellm.toml", "sbom.cdx.json"),
        *("wheels/edgellm-0.2.0-py3-none-any.whl", "wheels/library-1.0-py3-none-any.whl"),
        *("engines/engine.tar.zst", "models/model/model.gguf", "collection/collection/galaxy.yml"),
    }
    parts = json.loads((whole / "sbom.cdx.json").read_text())["components"]
    assert [part["purl"] for part in parts] == ["pkg:pypi/edgellm@0.2.0", "pkg:pypi/library@1.0"]
    assert parts[1]["licenses"] == [{"license": {"name": "MIT"}}]


def test_a_whole_one_is_taken(bundle: Path, paths: HostPaths, signing_key: Path) -> None:
    verified = verify(bundle, signing_key)
    assert (verified.returncode, verified.stderr) == (0, "")
    assert verified.stdout.startswith("verified: 10 files, ")
    venv = open_source(str(bundle), Kind.VENV, paths)
    assert [wheel.name for wheel in venv.wheels] == [
        "edgellm-0.2.0-py3-none-any.whl",
        "library-1.0-py3-none-any.whl",
    ]
    assert (venv.extras, venv.floor) == (bundle, "0.1.0")
    assert open_source(str(bundle), Kind.CONTAINER, paths).image == bundle / "image.tar"


def refused_by_both(bundle: Path, paths: HostPaths, key: Path, name: str) -> None:
    """By the shell program and by the host tool, each naming the file."""
    refused = verify(bundle, key)
    assert refused.returncode == 77, refused.stdout
    assert str(bundle / name) in refused.stderr
    assert refused.stderr.count("\n") == 1
    with pytest.raises(EdgeLLMError) as raised:
        open_source(str(bundle), Kind.VENV, paths)
    assert isinstance(raised.value, ReleaseUntrustedError | ReleaseSourceError)
    assert str(bundle / name) in str(raised.value)


PARTS = [
    *("install.sh", "host.pyz", "image.tar", "edgellm.toml", "sbom.cdx.json", "engines/engine.tar.zst"),
    *("wheels/edgellm-0.2.0-py3-none-any.whl", "models/model/model.gguf", "collection/collection/galaxy.yml"),
]


@pytest.mark.parametrize("name", [*PARTS, "manifest.json"])
def test_a_changed_byte_is_refused(bundle: Path, paths: HostPaths, signing_key: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[-2] ^= 1
    (bundle / name).write_bytes(content)
    refused_by_both(bundle, paths, signing_key, name)


@pytest.mark.parametrize("change", ["truncated", "longer", "missing", "link"])
def test_a_file_that_is_not_whole_is_refused(
    bundle: Path, paths: HostPaths, signing_key: Path, change: str, tmp_path: Path
) -> None:
    name = "engines/engine.tar.zst"
    file, content = bundle / name, (bundle / name).read_bytes()
    changes: dict[str, Callable[[], object]] = {
        "truncated": lambda: file.write_bytes(content[:-1]),
        "longer": lambda: file.write_bytes(content + b"\0"),
        "missing": file.unlink,
        "link": lambda: (file.rename(tmp_path / "elsewhere"), file.symlink_to(tmp_path / "elsewhere")),
    }
    changes[change]()
    refused_by_both(bundle, paths, signing_key, name)


@pytest.mark.parametrize("name", ["extra", "wheels/evil-1.0-py3-none-any.whl", "engines/manifest.json"])
def test_a_file_that_nobody_signed_is_refused(bundle: Path, paths: HostPaths, signing_key: Path, name: str) -> None:
    (bundle / name).write_text("more")
    refused_by_both(bundle, paths, signing_key, name)


def test_another_key_is_refused(bundle: Path, tmp_path: Path, other_key: Path, signing_key: Path) -> None:
    host = HostPaths(tmp_path / "host")
    host.trusted_keys.mkdir(parents=True)
    shutil.copy(f"{other_key}.pub", host.trusted_keys / "other.pub")
    refused_by_both(bundle, host, other_key, "manifest.json")
    (bundle / "manifest.json.sig").unlink()
    refused = verify(bundle, signing_key)
    assert refused.returncode == 77
    assert "manifest.json.sig is missing" in refused.stderr


def test_a_signature_for_another_purpose_is_refused(bundle: Path, paths: HostPaths, signing_key: Path) -> None:
    (bundle / "manifest.json.sig").unlink()
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(signing_key), "-n", "file", str(bundle / "manifest.json")],
        check=True,
        capture_output=True,
    )
    refused_by_both(bundle, paths, signing_key, "manifest.json")


def test_an_unsigned_folder_is_taken_only_where_no_key_is_trusted(tmp_path: Path, paths: HostPaths) -> None:
    make_inputs(tmp_path / "inputs")
    wheels = str(tmp_path / "inputs/wheels")
    with pytest.raises(ReleaseUntrustedError, match="trusts only what is signed"):
        open_source(wheels, Kind.VENV, paths)
    with pytest.raises(ReleaseUntrustedError, match="trusts only what is signed"):
        open_source(f"{wheels}/edgellm-0.2.0-py3-none-any.whl", Kind.VENV, paths)
    shutil.rmtree(paths.trusted_keys)
    assert open_source(wheels, Kind.VENV, paths).wheel.name == "edgellm-0.2.0-py3-none-any.whl"


# Options that both commands have: with a part that is missing, empty, of the wrong kind, or not what it should be.
WHEELS = ("--wheels", "wheels")
INPUT_MISTAKES = [
    (["--wheels"], 64, "argument --wheels: expected one argument — see "),
    (["--wheels", ""], 64, "argument --wheels: an empty text names no file or folder"),
    (["--wheel", "wheels"], 64, "unrecognized arguments: --wheel wheels"),
    (["--wheels", "/nowhere"], 66, "--wheels /nowhere is not there"),
    (["--wheels", "edgellm.toml"], 66, "--wheels edgellm.toml is no folder — name the folder itself"),
    (["--wheels", "model"], 66, "--wheels model needs one wheel of edgellm, and has 0"),
    (["--wheels", "damaged"], 66, "damaged/edgellm-0.2.0-py3-none-any.whl is damaged — get it anew"),
    (["--wheels", "renamed"], 66, "edgellm-0.2.0.whl is not named as a wheel — get it anew"),
    ([*WHEELS, "--engine", ""], 64, "argument --engine: an empty text names no file or folder"),
    ([*WHEELS, "--engine", "/nowhere"], 66, "--engine /nowhere is not there"),
    ([*WHEELS, "--engine", "model"], 66, "--engine model is a folder — name the file itself"),
    ([*WHEELS, "--engine", "model/model.gguf"], 66, "model/model.gguf is no engine's archive"),
    ([*WHEELS, "--engine", "cut.tar.zst"], 66, "cut.tar.zst is no engine's archive — make one with edgellm engine"),
    ([*WHEELS, "--model", ""], 64, "argument --model: an empty text names no file or folder"),
    ([*WHEELS, "--model", "/nowhere"], 66, "--model /nowhere is not there"),
    ([*WHEELS, "--model", "/"], 66, "--model / has no name of its own — name the model's folder or file"),
    (
        [*WHEELS, "--model", "collection"],
        66,
        "--model collection has no weights (*.gguf, *.safetensors, *.onnx, model.",
    ),
    ([*WHEELS, "--model", "edgellm.toml"], 66, "--model edgellm.toml is no file of weights (*.gguf, "),
    ([*WHEELS, "--model", "pointer"], 66, "pointer/model.safetensors is what Git LFS puts in the file's place"),
    ([*WHEELS, "--model", "empty.onnx"], 66, "empty.onnx is damaged — fetch the model anew"),
    ([*WHEELS, "--model", "no.gguf"], 66, "no.gguf is damaged — fetch the model anew"),
    ([*WHEELS, "--model", "large.gguf"], 73, " needs up to 80000"),
    ([*WHEELS, "--config", ""], 64, "argument --config: an empty text names no file or folder"),
    ([*WHEELS, "--config", "/nowhere"], 66, "--config /nowhere is not there"),
    ([*WHEELS, "--config", "model"], 66, "--config model is a folder — name the file itself"),
    ([*WHEELS, "--config", "model/model.gguf"], 78, "model/model.gguf is no valid TOML"),
    ([*WHEELS, "--config", "wrong.toml"], 78, "wrong.toml: unknown key server.prot — did you mean"),
]
BUNDLE_MISTAKES = [
    ([], 66, "nothing would be installed — give --wheels, --image-archive or both"),
    ([*WHEELS, "--architecture", "arm64"], 64, "choose from 'x86_64', 'aarch64', 'any'"),
    (["--wheels", "of-arm", "--architecture", "x86_64"], 66, "is for linux_aarch64, and the bundle for x86_64"),
    (["--wheels", "of-arm", "--architecture", "any"], 66, "is for linux_aarch64, and the bundle for any"),
    (["--image-archive", ""], 64, "argument --image-archive: an empty text names no file or folder"),
    (["--image-archive", "/nowhere"], 66, "--image-archive /nowhere is not there"),
    (["--image-archive", "model"], 66, "--image-archive model is a folder — name the file itself"),
    (["--image-archive", "model/model.gguf"], 66, "model/model.gguf is no container image's archive"),
    (
        ["--image-archive", "arm.tar", "--architecture", "x86_64"],
        66,
        "arm.tar is for aarch64, and the bundle for x86_64",
    ),
    (["--image-archive", "arm.tar", "--architecture", "any"], 66, "arm.tar is for aarch64, and the bundle for any"),
    (
        ["--image-archive", "newer.tar", "--wheels", "wheels", "--architecture", "aarch64"],
        66,
        "the wheel is edgellm 0.2.0, and newer.tar holds 0.3.0",
    ),
    ([*WHEELS, "--collection", ""], 64, "argument --collection: an empty text names no file or folder"),
    ([*WHEELS, "--collection", "/nowhere"], 66, "--collection /nowhere is not there"),
    ([*WHEELS, "--collection", "model"], 66, "--collection model is none, and edgellm.appliance is needed — give the"),
    ([*WHEELS, "--collection", "edgellm.toml"], 66, "--collection edgellm.toml is none, and edgellm.appliance is"),
    (
        [*WHEELS, "--collection", "others"],
        66,
        "--collection others is the collection acme.other, and edgellm.appliance",
    ),
    ([*WHEELS, "--collection", "others.tar"], 66, "--collection others.tar is the collection acme.other, and edgellm."),
    ([*WHEELS, "--sbom", ""], 64, "argument --sbom: an empty text names no file or folder"),
    ([*WHEELS, "--sbom", "/nowhere"], 66, "--sbom /nowhere is not there"),
    ([*WHEELS, "--sbom", "model"], 66, "--sbom model is a folder — name the file itself"),
    ([*WHEELS, "--sbom", "edgellm.toml"], 66, "--sbom edgellm.toml is no bill of materials — give one of CycloneDX"),
    ([*WHEELS, "--sbom", "spdx.json"], 66, "--sbom spdx.json is no bill of materials — give one of CycloneDX, in JSON"),
    (
        [*WHEELS, "--model", "two words.gguf"],
        66,
        "two words.gguf: a bundle's names have letters, digits and . _ + @ - ",
    ),
    (
        [*WHEELS, "--model", "model", "--model", "more/model"],
        66,
        "more/model/model.gguf: models/model/model.gguf would be",
    ),
    ([*WHEELS, "--floor", ""], 66, "--floor: '' is no version"),
    ([*WHEELS, "--floor", "new"], 66, "--floor: 'new' is no version"),
    ([*WHEELS, "--floor", "0.2.1"], 66, "--floor 0.2.1 would refuse this very release, which is 0.2.0"),
    ([*WHEELS, "--archive", ""], 64, "argument --archive: an empty text names no file or folder"),
    ([*WHEELS, "--archive", "/nowhere/bundle.tar"], 66, "--archive /nowhere/bundle.tar: its folder is not there"),
    (
        [*WHEELS, "--archive", "bundle/bundle.tar"],
        66,
        "--archive bundle/bundle.tar: its folder is not there — name one",
    ),
    ([*WHEELS, "--archive", "model"], 66, "--archive model is a folder — name the file that is to be made"),
    *(
        ([*WHEELS, "--archive", name], 66, f"--archive {name} is there already — choose another name, or remove it")
        for name in ("pipe", "dangling", "edgellm.toml")
    ),
    ([*WHEELS, "--sign", ""], 64, "argument --sign: an empty text names no file or folder"),
    ([*WHEELS, "--sign", "/nowhere"], 66, "--sign /nowhere is not there"),
    ([*WHEELS, "--sign", "model"], 66, "--sign model is a folder — name the file itself"),
    ([*WHEELS, "--sign", "edgellm.toml"], 77, "manifest.json cannot be signed with edgellm.toml"),
]
# What may not be read, by anybody but root.
UNREADABLE = ["--wheels", "--engine", "--model", "--config", "--image-archive", "--collection", "--sbom", "--sign"]


@pytest.fixture
def mistaken_inputs(tmp_path: Path) -> Path:
    make_inputs(tmp_path)
    for name in ("of-arm/edgellm-0.2.0-cp312-cp312-linux_aarch64.whl", "renamed/edgellm-0.2.0.whl", "empty.onnx"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    container_archive(tmp_path / "arm.tar", architecture="arm64", version="0.2.0")
    container_archive(tmp_path / "newer.tar", architecture="arm64", version="0.3.0")
    with (tmp_path / "large.gguf").open("wb") as sparse:
        sparse.write(b"GGUF")
        sparse.truncate(8 * 10**12)
    acme = {"namespace": "acme", "name": "other"}
    write_tar(tmp_path / "others.tar", {"MANIFEST.json": json.dumps({"collection_info": acme}).encode()})
    for name, content in {
        "damaged/edgellm-0.2.0-py3-none-any.whl": b"no wheel",
        "wrong.toml": b"[server]\nprot = 1\n",
        "cut.tar.zst": (tmp_path / "engine.tar.zst").read_bytes()[:30],
        "pointer/model.safetensors": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "no.gguf": b"<html>",
        "two words.gguf": b"GGUF",
        "more/model/model.gguf": b"GGUF",
        "others/galaxy.yml": b"namespace: acme\nname: other\n",
        "spdx.json": b'{"spdxVersion": "SPDX-2.3"}',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(("arguments", "code", "said"), [*INPUT_MISTAKES, *BUNDLE_MISTAKES])
def test_what_cannot_be_bundled_is_said(
    mistaken_inputs: Path, signing_key: Path, arguments: list[str], code: int, said: str
) -> None:
    refused = run_bundle("bundle", "--sign", str(signing_key), *arguments, folder=mistaken_inputs)
    assert refused.returncode == code, refused.stderr
    assert said in refused.stderr
    assert refused.stderr.startswith("image/bundle: ")
    assert refused.stderr.count("\n") == 1
    assert not (mistaken_inputs / "bundle").exists()


@pytest.mark.parametrize(("arguments", "code", "said"), INPUT_MISTAKES)
def test_an_image_is_not_made_of_what_cannot_be_bundled(
    mistaken_inputs: Path, arguments: list[str], code: int, said: str
) -> None:
    refused = run_build("generic-x86_64", "--output", "image", *arguments, folder=mistaken_inputs)
    assert refused.returncode == code, refused.stderr
    assert said in refused.stderr
    assert refused.stderr.startswith("image/build: ")
    assert refused.stderr.count("\n") == 1
    assert not (mistaken_inputs / "image").exists()


@pytest.mark.parametrize("option", UNREADABLE)
def test_what_may_not_be_read_is_named(tmp_path: Path, signing_key: Path, option: str) -> None:
    options = make_inputs(tmp_path)
    shutil.copy(signing_key, tmp_path / "key")
    (tmp_path / "sbom.json").write_text('{"bomFormat": "CycloneDX", "components": []}')
    options += ["--sign", str(tmp_path / "key"), "--sbom", str(tmp_path / "sbom.json")]
    closed = Path(options[options.index(option) + 1])
    closed.chmod(0)
    # Root may read everything: without that, too.
    ordinary = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    refused = subprocess.run(
        [*ordinary, sys.executable, str(BUNDLE), str(tmp_path / "bundle"), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    closed.chmod(0o700)
    assert (refused.returncode, refused.stderr) == (66, f"image/bundle: {option} {closed}: Permission denied\n")
    assert not (tmp_path / "bundle").exists()


def test_names_may_have_spaces_and_be_relative(tmp_path: Path, signing_key: Path) -> None:
    folder = tmp_path / "a stick of ours"
    folder.mkdir()
    make_inputs(folder)
    for name in ("wheels", "edgellm.toml", "image.oci"):
        (folder / name).rename(folder / f"the {name}")
    shutil.copy(signing_key, folder / "the key")
    shutil.copy(f"{signing_key}.pub", folder / "the key.pub")
    made = run_bundle(
        *("../the bundle", "--wheels", "../the wheels", "--image-archive", "../the image.oci", "--model", "."),
        *("--config", "../the edgellm.toml", "--sign", "../the key", "--archive", "../the bundle.tar"),
        folder=folder / "model",
    )
    assert made.returncode == 0, made.stderr
    assert {"models/model/model.gguf", "image.tar"} <= set(read_manifest(folder / "the bundle").files)
    verified = subprocess.run(
        ["sh", "the bundle/install.sh", "--verify-only", "--key", "the key.pub"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    image = run_build(
        *("generic-x86_64", "--output", "../the image", "--wheels", "../the wheels", "--model", "."),
        *("--config", "../the edgellm.toml", "--without-pairing"),
        folder=folder / "model",
    )
    assert image.returncode == 0, image.stderr
    files = json.loads((folder / "the image/manifest.json").read_text())["files"]
    assert "usr/share/edgellm/image/models/model/model.gguf" in files


def test_an_output_that_cannot_be_made_is_named(tmp_path: Path, signing_key: Path) -> None:
    make_inputs(tmp_path)
    refused = run_bundle("edgellm.toml/b", "--wheels", "wheels", "--sign", str(signing_key), folder=tmp_path)
    assert refused.returncode == 66
    assert refused.stderr == "image/bundle: edgellm.toml/b: Not a directory — name a folder that can be made\n"


def test_install_says_that_it_has_no_room_to_look(whole: Path, signing_key: Path) -> None:
    refused = subprocess.run(
        ["sh", str(whole / "install.sh"), "--verify-only", "--key", f"{signing_key}.pub"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": "/nowhere"},
    )
    assert refused.returncode == 73
    assert refused.stderr == (
        "install: /nowhere takes no copy of the bundle's manifest — make room there, or set TMPDIR\n"
    )


def test_a_signature_that_cannot_be_made_leaves_no_bundle(tmp_path: Path, signing_key: Path) -> None:
    """A key that asks for a passphrase cannot be asked: an agent holds it."""
    make_inputs(tmp_path)
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", str(locked)], check=True)
    refused = run_bundle("bundle", "--wheels", "wheels", "--sign", str(locked), folder=tmp_path)
    assert refused.returncode == 77
    assert "has a passphrase — load it into ssh-agent" in refused.stderr
    assert not (tmp_path / "bundle").exists()


def test_the_options_of_install_sh_are_shown_and_a_wrong_one_is_named(
    bundle: Path, signing_key: Path, tmp_path: Path
) -> None:
    program = ["sh", str(bundle / "install.sh")]
    shown = subprocess.run([*program, "--help"], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "sudo sh install.sh --key PUBLISHER.pub" in shown.stdout
    assert "set -eu" not in shown.stdout
    for arguments, code, said in (
        (["bundle"], 64, "install: bundle is no option — see sh install.sh --help\n"),
        (["--key"], 64, "install: --key needs a value\n"),
        (["--key", ""], 64, "install: --key needs a value\n"),
        (["--mode", ""], 64, "install: --mode needs a value\n"),
        (["--mode", "--verify-only"], 64, "install: --mode is venv or container, not --verify-only\n"),
        (
            ["--verify-only", "--key", str(tmp_path)],
            66,
            f"install: --key {tmp_path} is no file — name the file itself\n",
        ),
        (["--mode", "docker"], 64, "install: --mode is venv or container, not docker\n"),
        (["--verify-only", "--key", "/nowhere.pub"], 66, "install: --key /nowhere.pub is not there\n"),
        (
            ["--verify-only", "--key", str(signing_key)],
            66,
            f"install: --key {signing_key} holds no public key of ssh-keygen — give the .pub file, never the private "
            "key\n",
        ),
    ):
        refused = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stderr) == (code, said)
