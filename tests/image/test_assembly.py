"""Assembled images: the same inputs give the same bytes, every file is accounted for, and wrong inputs are named."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from tests.image.another_day import UMASK, on_another_day
from tests.image.container_archives import container_archive
from tests.image.engine_archives import engine_archive

from board_image.assembly import ARCHIVE, SBOM, SUMS, apply, assemble, verify
from board_image.board import board_names, read_board
from board_image.contents import Inputs, contents_of
from edgellm.config import load_settings
from edgellm.errors import ConfigError
from edgellm.service.install import Mode, Target, system_files

IMAGE = Path(__file__).resolve().parents[2] / "image"
UNITS = "usr/local/lib/systemd/system"
WANTS = "etc/systemd/system/multi-user.target.wants"


def build(*arguments: object, program: Path = IMAGE / "build", **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})


@pytest.fixture
def inputs(tmp_path: Path, wheels: Path) -> Inputs:
    engine, model = engine_archive(tmp_path / "tiny.tar.zst"), tmp_path / "tiny-model"
    (model / "folder").mkdir(parents=True)
    (model / "folder/weights.gguf").write_bytes(b"GGUF of some weights")
    return Inputs(wheels=wheels, engines=[engine], models=[model])


def copied_checkout(folder: Path) -> Path:
    """What image/build needs of one."""
    for part in ("image", "daemon/edgellm", "systemd"):
        compiled = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(IMAGE.parent / part, folder / part, symlinks=True, ignore=compiled)
    return folder


def test_there_is_a_file_for_each_board_that_is_supported() -> None:
    assert board_names() == [
        "generic-x86_64",
        "jetson-agx-orin",
        "jetson-agx-thor",
        "jetson-orin-nano",
        "jetson-orin-nx",
    ]
    for name in board_names():
        board = read_board(name)
        assert (board.bsp is not None) == name.startswith("jetson")
        assert (board.sm is not None) == name.startswith("jetson")


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path, inputs: Inputs, wheels: Path) -> None:
    board = read_board("generic-x86_64")
    assemble(board, inputs, tmp_path / "one")
    for path in (*wheels.iterdir(), *inputs.engines):
        os.utime(path, (time.time() + 1000,) * 2)
        path.chmod(0o600)
    mask = os.umask(0o077)
    try:
        assemble(board, inputs, tmp_path / "two")
    finally:
        os.umask(mask)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    assert len(list((tmp_path / "one").iterdir())) == 4


@pytest.mark.parametrize("name", board_names())
def test_another_checkout_on_another_day_gives_the_same_bytes(tmp_path: Path, wheels: Path, name: str) -> None:
    """By another clock, time zone, umask, language and order of dictionaries, from files that were copied."""
    container = container_archive(tmp_path / "edgellm.tar", architecture="arm64")
    given = ("--wheels", wheels) if name.startswith("generic") else ("--container", container)
    elsewhere = copied_checkout(tmp_path / "elsewhere")
    for path in elsewhere.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.touch()
    made = build(name, *given, "--output", tmp_path / "one", PYTHONHASHSEED="1", TZ="Asia/Tokyo", LC_ALL="C.UTF-8")
    assert made.returncode == 0, made.stderr
    arguments = [name, *map(str, given), "--output", str(tmp_path / "two")]
    strange = {"PYTHONHASHSEED": "2", "TZ": "America/New_York", "LC_ALL": "C", "PYTHONPATH": ""}
    other = subprocess.run(
        [*on_another_day(elsewhere / "image/build"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **strange},
        umask=UMASK,
    )
    assert other.returncode == 0, other.stderr
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_every_file_of_the_archive_is_in_the_manifest_with_its_digest(tmp_path: Path, inputs: Inputs) -> None:
    manifest = assemble(read_board("generic-x86_64"), inputs, tmp_path / "image")
    assert verify(tmp_path / "image") == manifest
    with tarfile.open(tmp_path / "image" / ARCHIVE) as archive:
        members = {member.name: member for member in archive if not member.isdir()}
    own = "usr/share/edgellm/image/manifest.json"
    assert set(members) - {own} == set(manifest["files"])
    assert {member.uid for member in members.values()} == {0}
    assert len({member.mtime for member in members.values()}) == 1
    assert manifest["part_bytes"].keys() == {"engines", "models", "system", "wheels"}
    components = json.loads((tmp_path / "image" / SBOM).read_bytes())["components"]
    assert {one.get("purl") for one in components} >= {"pkg:pypi/edgellm@0.1.0", "pkg:pypi/jinja2@3.1.6"}
    assert {"tiny.tar.zst", "tiny-model"} <= {part for one in components for part in one["name"].split("/")}
    assert all(one["hashes"][0]["content"] for one in components)


def test_units_are_those_of_edgellm_install_and_are_wanted_at_boot(tmp_path: Path, inputs: Inputs) -> None:
    entries = {entry.name: entry for entry in contents_of(read_board("generic-x86_64"), inputs)}
    for name, file in system_files(Mode.VENV, Target(tmp_path), gpu=False).items():
        if name != "etc/edgellm/edgellm.toml":
            assert (entries[name].content, entries[name].mode) == (file.content, file.mode), name
    for unit in ("edgellm", "edgellm-prewarm", "edgellm-first-boot", "edgellm-pairing-notice", "edgellm-device-facts"):
        assert entries[f"{WANTS}/{unit}.service"].link == f"/{UNITS}/{unit}.service"
    preset = (entries["usr/local/lib/systemd/system-preset/80-edgellm.preset"].content or b"").decode()
    patterns = re.findall(r"(?m)^enable (\S+)$", preset)
    wanted = [name.rpartition("/")[2] for name in entries if ".wants/" in name]
    assert [unit for unit in wanted if not any(fnmatch(unit, pattern) for pattern in patterns)] == []
    # A root file system may come with an id of its own for D-Bus, which systemd would make that of every board.
    assert entries["var/lib/dbus/machine-id"].link == "/etc/machine-id"
    assert entries["etc/machine-id"].content == b""
    record = json.loads(entries["usr/local/lib/edgellm/installed.json"].content or b"")
    assert record["mode"] == "venv"
    assert set(record["files"]) <= set(entries)


def test_the_configuration_serves_others_over_https_with_keys(tmp_path: Path, inputs: Inputs) -> None:
    entries = {entry.name: entry for entry in contents_of(read_board("generic-x86_64"), inputs)}
    file = tmp_path / "edgellm.toml"
    file.write_bytes(entries["etc/edgellm/edgellm.toml"].content or b"")
    server = load_settings(file=file, environ={}).settings.server
    assert str(server.api_keys_file) == "/run/credentials/edgellm.service/api-keys"
    assert str(server.tls_authority_file) == "/run/credentials/edgellm.service/tls-authority"
    own = tmp_path / "own.toml"
    own.write_text("[server]\nport = 9000\n")
    chosen = Inputs(wheels=inputs.wheels, config=own, without_pairing=True)
    entries = {entry.name: entry for entry in contents_of(read_board("generic-x86_64"), chosen)}
    assert tomllib.loads((entries["etc/edgellm/edgellm.toml"].content or b"").decode()) == {"server": {"port": 9000}}


def test_a_jetson_gets_quadlets_with_its_gpu(tmp_path: Path) -> None:
    archive = container_archive(tmp_path / "saved image.oci", architecture="arm64")
    entries = {entry.name: entry for entry in contents_of(read_board("jetson-orin-nano"), Inputs(container=archive))}
    quadlet = (entries["usr/share/containers/systemd/edgellm.container"].content or b"").decode()
    assert "AddDevice=nvidia.com/gpu=all" in quadlet
    assert "/etc/nv_tegra_release" in quadlet
    assert f"{WANTS}/edgellm.service" not in entries  # a Quadlet is enabled by its own section
    assert entries["usr/share/edgellm/image/container/edgellm.tar"].file == archive


def test_an_image_is_laid_over_a_root_file_system_that_stays_its_own(tmp_path: Path, inputs: Inputs) -> None:
    assemble(read_board("generic-x86_64"), inputs, tmp_path / "image")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True, mode=0o711)
    (root / "etc/hostname").write_text("other\n")
    (root / "etc/fstab").write_text("mine\n")
    for _ in range(2):
        apply(tmp_path / "image", root)
        assert (root / "etc/hostname").read_text() == "edgellm\n"
        assert (root / "etc/fstab").read_text() == "mine\n"
        assert (root / "etc").stat().st_mode & 0o777 == 0o711
        assert (root / "usr/local/lib/edgellm/device-facts").stat().st_mode & 0o777 == 0o755
        assert (root / WANTS / "edgellm.service").is_symlink()


def test_links_of_a_root_file_system_lead_nowhere_else(tmp_path: Path, inputs: Inputs) -> None:
    assemble(read_board("generic-x86_64"), inputs, tmp_path / "image")
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    root.mkdir()
    (root / "etc").symlink_to(outside)
    with pytest.raises(ConfigError, match="leads out of"):
        apply(tmp_path / "image", root)
    assert not list(outside.iterdir())


@pytest.mark.parametrize("name", [ARCHIVE, SBOM, "manifest.json", SUMS])
def test_a_changed_byte_is_found_and_named(tmp_path: Path, inputs: Inputs, name: str) -> None:
    assemble(read_board("generic-x86_64"), inputs, tmp_path / "image")
    content = bytearray((tmp_path / "image" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "image" / name).write_bytes(content)
    with pytest.raises(ConfigError, match=f"{name}|SHA256SUMS|no assembled image"):
        verify(tmp_path / "image")


def test_the_command_prints_sizes_and_names_what_is_wrong(tmp_path: Path, wheels: Path) -> None:
    good = build("generic-x86_64", "--wheels", wheels, "--output", tmp_path / "image")
    assert good.returncode == 0, good.stderr
    assert "wheels" in good.stdout
    assert "system" in good.stdout
    cases = {
        "there is no board 'jetson-nano'": (78, "jetson-nano", "--wheels", wheels),
        "give either --container FILE or --wheels FOLDER": (78, "generic-x86_64"),
        f"{tmp_path}/absent is not there": (66, "generic-x86_64", "--wheels", tmp_path / "absent"),
        "own.toml is not there": (66, "generic-x86_64", "--wheels", wheels, "--config", tmp_path / "own.toml"),
        "linux_x86_64, and jetson-orin-nx is aarch64": (66, "jetson-orin-nx", "--wheels", wheels),
        f"--wheels {tmp_path} needs one wheel of edgellm, and has 0": (66, "generic-x86_64", "--wheels", tmp_path),
        "missing.tar.zst is not there": (66, "generic-x86_64", "--wheels", wheels, "--engine", "missing.tar.zst"),
        "is there already": (78, "generic-x86_64", "--wheels", wheels, "--output", tmp_path / "image"),
    }
    for text, (code, *arguments) in cases.items():
        output = () if "--output" in arguments else ("--output", tmp_path / "new")
        refused = build(*arguments, *output)
        assert refused.returncode == code, (text, refused.stderr)
        assert refused.stderr.count("\n") == 1
        assert text in refused.stderr
        assert "Traceback" not in refused.stderr
        assert not (tmp_path / "new").exists()
    assert build("generic-x86_64").returncode == 64


def test_what_does_not_fit_is_refused_with_both_numbers_before_it_is_read(tmp_path: Path, wheels: Path) -> None:
    model = tmp_path / "large"
    model.mkdir()
    with (model / "model.gguf").open("wb") as sparse:
        sparse.write(b"GGUF")
        sparse.truncate(8 * 10**12)
    refused = build("generic-x86_64", "--wheels", wheels, "--model", model, "--output", tmp_path / "new")
    assert refused.returncode == 73
    numbers = r"needs up to 80000\d\d\.\d MB, and \d+\.\d MB are free"
    said = rf"image/build: {tmp_path}/new: the image {numbers} — make room, or name another folder\n"
    assert re.fullmatch(said, refused.stderr)
    assert not (tmp_path / "new").exists()


def test_an_output_that_cannot_be_made_is_named(tmp_path: Path, wheels: Path) -> None:
    (tmp_path / "file").touch()
    refused = build("generic-x86_64", "--wheels", wheels, "--output", tmp_path / "file/new")
    assert refused.returncode == 78
    assert refused.stderr == (
        f"image/build: {tmp_path}/file/new: Not a directory — name a new folder where one can be made\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server\n", "is no valid TOML: "),
        ("[server]\nprot = 1\n", 'unknown key server.prot — did you mean "port"? (at line 2)'),
        ("# of ours\n\n[server]\nport = 70000\n", "server.port must be at most 65535 (at line 4)"),
        ("[[models]]\nsource = 'm'\nthreads = 0\n", "models[0].threads must be at least 1"),
        ("[server]\ntls_key_file = '/etc/edgellm/key'\n", "server.tls_key_file needs tls_certificate_file"),
    ],
)
def test_a_configuration_that_the_board_would_refuse_gets_onto_no_image(
    tmp_path: Path, wheels: Path, text: str, said: str
) -> None:
    config = tmp_path / "own.toml"
    config.write_text(text)
    refused = build("generic-x86_64", "--wheels", wheels, "--config", config, "--output", tmp_path / "new")
    assert refused.returncode == 78
    assert f"{config}" in refused.stderr
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


KEYS = "api_keys_file = '/run/credentials/edgellm.service/api-keys'\n"
HTTPS = "tls_certificate_file = '{0}/server.crt'\ntls_key_file = '{0}/server.key'\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "clients need no key here"),
        ("cache_dir = '/var/lib/edgellm'\n[log]\nlevel = 'debug'\n", "clients need no key here"),
        (f"[server]\n{KEYS}", "the server has no certificate of a private authority"),
        (f"[server]\n{KEYS}{HTTPS}".format("/run/credentials/edgellm.service"), "the server has no certificate of a"),
    ],
)
def test_a_configuration_that_lets_nobody_pair_is_taken_only_where_that_is_meant(
    tmp_path: Path, wheels: Path, text: str, why: str
) -> None:
    config = tmp_path / "own.toml"
    config.write_text(text)
    command = ("generic-x86_64", "--wheels", wheels, "--config", config, "--output")
    refused = build(*command, tmp_path / "new")
    assert refused.returncode == 78
    assert f"{config}: no client could pair with a server of it: {why}" in refused.stderr
    assert "where it is meant, pairing.enabled = false" in refused.stderr
    assert "--without-pairing" in refused.stderr
    assert not (tmp_path / "new").exists()
    assert build(*command, tmp_path / "new", "--without-pairing").returncode == 0
    config.write_text(f"{text}\n[pairing]\nenabled = false\n")
    assert build(*command, tmp_path / "meant").returncode == 0


def test_an_authority_beside_the_certificate_of_a_board_is_enough_to_pair(tmp_path: Path, wheels: Path) -> None:
    config = tmp_path / "own.toml"
    config.write_text(f"[server]\n{KEYS}{HTTPS}".format("/etc/edgellm/tls"))
    made = build("generic-x86_64", "--wheels", wheels, "--config", config, "--output", tmp_path / "new")
    assert made.returncode == 0, made.stderr


def test_a_configuration_names_what_is_on_the_board_alone(tmp_path: Path, wheels: Path) -> None:
    """And what this machine's environment says is not of the board."""
    config = tmp_path / "own.toml"
    files = "".join(
        f"{name}_file = '/run/credentials/edgellm.service/{name}'\n"
        for name in ("api_keys", "tls_certificate", "tls_key", "tls_authority")
    )
    config.write_text(f"[server]\n{files}[[models]]\nsource = '/var/lib/edgellm/models/ours/model.gguf'\n")
    strange = {"EDGELLM_SERVER_PORT": "none", "EDGELLM_SERVER_PROT": "1", "EDGELLM_CONFIG": "/nowhere"}
    made = build("generic-x86_64", "--wheels", wheels, "--config", config, "--output", tmp_path / "new", **strange)
    assert made.returncode == 0, made.stderr
    with tarfile.open(tmp_path / "new" / ARCHIVE) as archive:
        inside = archive.extractfile("etc/edgellm/edgellm.toml")
        assert inside is not None
        assert inside.read() == config.read_bytes()


def test_a_machine_that_cannot_check_a_configuration_is_told_what_to_do(tmp_path: Path, wheels: Path) -> None:
    """From a checkout that nothing was set up in, by a Python with its standard library alone; without --config it is
    enough."""
    elsewhere = copied_checkout(tmp_path / "elsewhere")
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    config = tmp_path / "own.toml"
    config.write_text("[server]\nport = 1\n")
    command = [
        str(bare / "bin/python"),
        "-I",
        str(elsewhere / "image/build"),
        "generic-x86_64",
        "--wheels",
        str(wheels),
    ]
    refused = subprocess.run(
        [*command, "--config", str(config), "--output", str(tmp_path / "new")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 78
    assert f"run make setup in {elsewhere}, or pip install pydantic" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()
    subprocess.run([*command, "--output", str(tmp_path / "new")], capture_output=True, check=True)


def test_archives_that_no_board_of_the_kind_could_run_are_refused(tmp_path: Path, wheels: Path) -> None:
    of_a_pc = container_archive(tmp_path / "pc.tar", architecture="amd64")
    no_archive = tmp_path / "engine.tar.zst"
    no_archive.write_bytes(b"engine")
    for given, text in (
        (("jetson-orin-nano", "--container", of_a_pc), f"{of_a_pc} is for x86_64, and jetson-orin-nano is aarch64"),
        (("jetson-orin-nano", "--container", no_archive), f"{no_archive} is no container image's archive"),
        (("generic-x86_64", "--wheels", wheels, "--engine", no_archive), f"{no_archive} is no engine's archive"),
    ):
        refused = build(*given, "--output", tmp_path / "new")
        assert refused.returncode == 66
        assert text in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["build", "flash", "bundle"])
def test_an_older_python_is_told_in_one_line(name: str) -> None:
    """As Ubuntu 22.04 has it, one of NVIDIA's hosts for flashing."""
    older = (
        f"import runpy, sys; sys.version_info = (3, 10, 12); runpy.run_path({str(IMAGE / name)!r}, run_name='__main__')"
    )
    refused = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True, check=False)
    assert refused.returncode == 69
    assert refused.stderr.startswith(
        f"image/{name}: Python 3.11 or newer is needed, and this is 3.10 — on Ubuntu 22.04: "
    )
    assert refused.stderr.count("\n") == 1
