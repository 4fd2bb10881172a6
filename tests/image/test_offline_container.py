"""An offline bundle with a container image, on a device that no route leads out of: installed, upgraded and undone."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.image.bundles import STICK, Publisher, exported_engine
from tests.image.canaries import check_report, plant
from tests.image.image_releases import ImageReleases
from tests.image.reports import report_of
from tests.lab.container_image import CURRENT, BuiltImage
from tests.lab.fixtures import MakeDevice
from tests.lab.podman import Podman
from tests.service.appliance import UNIT
from tests.service.conftest import Say
from tests.service.container_appliance import LAB_QUADLET, ContainerAppliance
from tests.service.release_wheels import BROKEN, NOVEL, NOVEL_SETTING
from tests.service.upgrading import releases_of, upgrade
from tests.unit.host.conftest import make_key

import edgellm

pytestmark = [pytest.mark.system, pytest.mark.thorough]
MODEL = "smollm2-135m-instruct"
INSTALL_SECONDS = 600.0
LATER = "0.9.0"
EDITED = "/etc/edgellm/edgellm.toml"
REGISTRY_PORT = 5000
# A registry to read from: a layout of the Open Container Initiative over HTTP.
REGISTRY = """
import http.server, pathlib, shutil, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        file = pathlib.Path(sys.argv[1], "blobs", self.path.rpartition("/")[2].replace(":", "/"))
        found = self.path == "/v2/" or file.is_file()
        kind = "vnd.oci.image.manifest.v1+json" if "/manifests/" in self.path else "octet-stream"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", f"application/{kind}")
        self.send_header("Content-Length", str(file.stat().st_size if file.is_file() else 0))
        self.end_headers()
        if file.is_file() and self.command == "GET":
            with file.open("rb") as stream:
                shutil.copyfileobj(stream, self.wfile)

    do_HEAD = do_GET

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def publisher(device_folder: Path) -> Publisher:
    folder = device_folder / "container-publisher"
    folder.mkdir()
    return Publisher(device_folder / "container-stick", make_key(folder / "key"))


@pytest.fixture(scope="module")
def images(container_image: BuiltImage, device_folder: Path) -> Iterator[ImageReleases]:
    podman = Podman(device_folder / "container-store", container_image.images)
    try:
        yield ImageReleases(podman, container_image.name, device_folder / "container-releases")
    finally:
        podman.remove()


@pytest.fixture(scope="module")
def first_bundle(publisher: Publisher, image_archive: Path, device_folder: Path, model_folder: Path) -> str:
    """Its name below the stick."""
    inputs = device_folder / "container-inputs"
    shutil.copytree(model_folder, inputs / "cache/models" / model_folder.name)
    publisher.bundle(
        "first",
        *("--image-archive", image_archive, "--engine", exported_engine(MODEL, inputs), "--model", model_folder),
        *("--config", publisher.folder / "edgellm.toml", "--floor", edgellm.__version__),
    )
    return "first"


@pytest.fixture(scope="module")
def board(make_device: MakeDevice, container_rootfs: Path, publisher: Publisher) -> ContainerAppliance:
    """With podman and nothing of edgellm; its network is loopback alone."""
    device = make_device("offline-quadlet", container_rootfs, read_only={STICK: publisher.folder}, runs_containers=True)
    for unit in ("edgellm", "edgellm-prewarm"):
        device.write(f"/etc/containers/systemd/{unit}.container.d/lab.conf", LAB_QUADLET)
    device.boot()
    return ContainerAppliance(device)


def install(board: ContainerAppliance, bundle: str, *options: str) -> tuple[int, str]:
    program = f"{STICK}/{bundle}/install.sh"
    done = board.device.run("sh", program, *options, check=False, deadline_seconds=INSTALL_SECONDS)
    return done.code, done.output


def images_of(board: ContainerAppliance) -> list[str]:
    return board.device.run("podman", "images", "--format={{.Repository}}:{{.Tag}}").output.split()


def test_an_image_with_a_changed_bit_is_refused_and_never_loaded(
    board: ContainerAppliance, publisher: Publisher, first_bundle: str
) -> None:
    publisher.tampered(first_bundle, "image.tar")
    code, said = install(board, "tampered", "--key", f"{STICK}/publisher.pub")
    assert code == 77, said
    assert f"{STICK}/tampered/image.tar" in said
    assert images_of(board) == []


def test_it_installs_without_any_route_and_serves(board: ContainerAppliance, first_bundle: str, say: Say) -> None:
    assert board.device.run("ip", "route").output == ""
    began = time.monotonic()
    code, said = install(board, first_bundle, "--key", f"{STICK}/publisher.pub")
    assert code == 0, said
    say(f"offline bundle with an image: from the stick to READY {time.monotonic() - began:.1f} s")
    assert board.serving_version() == edgellm.__version__
    assert board.chat().status_code == 200
    assert board.device.unit(UNIT, "UnitFileState")["UnitFileState"] == "generated"
    listed = releases_of(board)
    assert (listed["current"]["kind"], listed["version_floor"]) == ("container", edgellm.__version__)
    assert MODEL in board.command("engine", "list").output
    pid = board.server_pid()
    code, said = install(board, first_bundle)
    assert (code, said.splitlines()[-1]) == (0, f"unchanged: {listed['current']['id']} serves")
    assert board.server_pid() == pid
    board.device.reboot()
    board.wait_until_it_answers()


def test_a_bundle_upgrades_an_earlier_install_and_goes_back(
    board: ContainerAppliance, publisher: Publisher, images: ImageReleases, say: Say
) -> None:
    publisher.bundle("later", "--image-archive", images.archive("later", LATER, NOVEL))
    refused, said = install(board, "later", "--mode", "venv")
    assert refused == 78
    assert "edgellm is installed here as a container, not as a venv — leave --mode out to upgrade it" in said
    code, said = install(board, "later", "--mode", "container")
    assert code == 0, said
    assert board.serving_version() == LATER
    assert board.chat().status_code == 200
    listed = releases_of(board)
    assert listed["current"]["version"] == LATER
    assert [(one["version"], one["present"]) for one in listed["kept"]] == [(edgellm.__version__, True)]
    say(f"containers: down {listed['last']['downtime_seconds']:.1f} s in an upgrade")
    kept = board.device.read(EDITED)
    board.device.write(EDITED, f"{kept}# edited since\n")
    back = upgrade(board, "--rollback")
    assert back.code == 0, back.output
    assert board.serving_version() == edgellm.__version__
    assert board.chat().status_code == 200
    assert board.device.read(EDITED) == f"{kept}# edited since\n"


def test_a_registry_s_digest_upgrades_too(
    board: ContainerAppliance, publisher: Publisher, images: ImageReleases
) -> None:
    digest = images.layout("later", publisher.folder / "registry")
    name = f"127.0.0.1:{REGISTRY_PORT}/edgellm@{digest}"
    absent = upgrade(board, name)
    assert absent.code == 76, absent.output
    assert f"{name} could not be fetched" in absent.report["reason"]
    board.device.write("/root/registry.py", REGISTRY)
    board.device.write(
        "/etc/containers/registries.conf.d/lab.conf",
        f'[[registry]]\nlocation = "127.0.0.1:{REGISTRY_PORT}"\ninsecure = true\n',
    )
    served = ("python3", "/root/registry.py", f"{STICK}/registry", str(REGISTRY_PORT))
    board.device.run("systemd-run", "--unit=registry", "--quiet", *served)
    upgraded = upgrade(board, name)
    assert upgraded.code == 0, upgraded.output
    assert board.serving_version() == LATER
    assert board.chat().status_code == 200
    kept = board.device.read(EDITED)
    board.device.write(EDITED, f"{NOVEL_SETTING}\n{kept}")
    back = upgrade(board, "--rollback")
    assert back.code == 0, back.output
    assert board.serving_version() == edgellm.__version__
    assert f"{EDITED}: unknown key server.novelty" in back.report["refusal_of_edits"]
    assert board.device.read(EDITED) == kept
    assert NOVEL_SETTING in board.device.read(f"{back.report['edits_folder']}{EDITED}")
    assert board.device.run("ls", "-A", "/etc/edgellm").output.count("coming") == 0


def test_a_bundle_whose_image_is_broken_is_undone(
    board: ContainerAppliance, publisher: Publisher, images: ImageReleases
) -> None:
    file, change = BROKEN["ends-at-its-start"]
    publisher.bundle("broken", "--image-archive", images.archive("broken", "0.9.9", {file: change}))
    before = images_of(board)
    code, said = install(board, "broken")
    assert code == 76, said
    assert board.serving_version() == edgellm.__version__
    assert board.chat().status_code == 200
    assert CURRENT in before
    assert sorted(images_of(board)) == sorted(before)


def test_a_report_knows_the_container_and_holds_no_prompt_and_no_key(board: ContainerAppliance) -> None:
    drop_in = ("/etc/containers/systemd/edgellm.container.d/50-token.conf", "[Container]\nEnvironment=")
    canaries = plant(board, token_drop_in=drop_in)
    report = report_of(board)
    check_report(board, report, canaries)
    for name in ("engines/engines.json", "service/models.json"):
        assert MODEL in report.texts[name], name
    assert edgellm.__version__ in report.texts["releases/version.txt"]
    assert "container" in report.texts["releases/releases.json"]
    assert [name for name, text in report.texts.items() if "not known: " in text] == []
