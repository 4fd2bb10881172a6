"""Power that goes in or after each step of a container's upgrade, and while its image is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.image.image_releases import ImageReleases
from tests.lab.container_image import BuiltImage
from tests.lab.fixtures import MakeDevice
from tests.lab.podman import Podman
from tests.service.conftest import Say
from tests.service.container_appliance import ARCHIVE, CONTAINER, ContainerAppliance
from tests.service.power_cuts import Cut, Moment, boot_after, cut_power_at, cut_power_when, moments, moments_reached

import edgellm
from edgellm.host.host_state import Step, StepState

pytestmark = pytest.mark.system
RELEASES = "/srv/releases"
LATER = "0.9.0"
QUICK_MOMENTS = [(Step.SWITCHED, StepState.DONE)]
HALF_LOADED_BYTES = 150_000_000
SLACK_BYTES = 60_000_000  # what podman keeps of an image beside its files, and small files of containers


@pytest.fixture(scope="module")
def later(container_image: BuiltImage, device_folder: Path) -> Iterator[Path]:
    """A release of which the device has no layer."""
    podman = Podman(device_folder / "power-store", container_image.images)
    try:
        releases = ImageReleases(podman, container_image.name, device_folder / "power-releases")
        yield releases.archive("later", LATER, in_one_layer=True)
    finally:
        podman.remove()


@pytest.fixture(scope="module")
def board(
    make_device: MakeDevice, container_rootfs: Path, image_archive: Path, later: Path, model_folder: Path
) -> ContainerAppliance:
    return ContainerAppliance.make_with_image(
        make_device, "quadlet-power", container_rootfs, image_archive, model_folder, {RELEASES: later.parent}
    ).serve()


@dataclass(frozen=True, slots=True)
class Journey:
    """Versions, and the archive of that after."""

    before: str
    after: str
    archive: str


@pytest.fixture
def journey(board: ContainerAppliance, image_archive: Path, later: Path) -> Journey:
    """From one release to the other, of which nothing was kept."""
    before = board.serving_version()
    if before == LATER:
        return Journey(before, edgellm.__version__, f"{ARCHIVE}/{image_archive.name}")
    return Journey(before, LATER, f"{RELEASES}/{later.name}")


def test_after_a_power_cut_while_its_image_is_loaded_the_upgrade_loads_it_anew(
    board: ContainerAppliance, journey: Journey, say: Say
) -> None:
    def is_half_loaded() -> bool:
        return bool(moments_reached(board)) and board.device.stored_image_bytes > at_first_bytes + HALF_LOADED_BYTES

    at_first_bytes = board.device.stored_image_bytes
    cut = cut_power_when(board, is_half_loaded, journey.archive, "--keep", "0")
    assert cut.reached == [(Step.STAGED, StepState.BEGUN)]
    check(board, cut, journey, say)


@pytest.mark.parametrize("moment", moments(*QUICK_MOMENTS))
def test_after_a_power_cut_a_whole_container_serves_and_the_upgrade_goes_on(
    board: ContainerAppliance, journey: Journey, moment: Moment, say: Say
) -> None:
    check(board, cut_power_at(board, moment, journey.archive, "--keep", "0"), journey, say)


def check(board: ContainerAppliance, cut: Cut, journey: Journey, say: Say) -> None:
    before, after = journey.before, journey.after
    seconds = boot_after(cut, board, board.serving_version, before, after)
    say(f"power cut at {cut}: {after if cut.has_arrived else before} ready {seconds:.1f} s after the boot began")
    listed = board.device.run("podman", "ps", "--all", "--external", "--format={{.Names}}").output.split()
    assert listed == [CONTAINER], "a container of an upgrade is left"
    images = board.device.run("podman", "images", "--all", "--format={{.ID}} {{.Repository}}").output.splitlines()
    assert len(set(images)) == 1, images
    (image,) = {line.split()[0] for line in images}
    size_bytes = int(board.device.run("podman", "image", "inspect", "--format={{.Size}}", image).output)
    assert board.device.stored_image_bytes < size_bytes + SLACK_BYTES, "layers of another image are left"
