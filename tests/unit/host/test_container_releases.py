"""How an upgrade runs a container to prepare a release: as the prewarming unit does, an administrator's changes too."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tests.image.container_archives import container_archive, image_configuration

from edgellm.host.archives import ZSTD_BEGINNING
from edgellm.host.brief_containers import _left_of, run_briefly
from edgellm.host.container_releases import PREWARM_UNIT, ContainerReleases
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind, Release
from edgellm.host.service_unit import PREWARM, ServiceUnit
from edgellm.host.source import Source

UNIT = """# Of edgellm install.
[Unit]
Description=edgellm
[Container]
Image=localhost/edgellm:current
PodmanArgs=--no-healthcheck --stop-timeout=85
Network=host
PidsLimit=2048
#Volume=/commented:/out
Volume=/var/lib/edgellm:/var/lib/edgellm
AddDevice=nvidia.com/gpu=all
[Service]
Environment=OF_THE_SERVICE=1
"""


@pytest.fixture
def paths(tmp_path: Path) -> HostPaths:
    write(tmp_path, PREWARM_UNIT, UNIT)
    return HostPaths(tmp_path)


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def options(paths: HostPaths, *own: str) -> list[str]:
    """Beside those that all have."""
    return ContainerReleases(paths)._run_options(*own)[3:]


def test_user_mounts_devices_and_limits_are_those_of_the_unit(paths: HostPaths) -> None:
    assert ContainerReleases(paths)._run_options()[:2] == ["--user=780:780", "--read-only"]
    assert options(paths) == [
        *("--no-healthcheck", "--network=host", "--pids-limit=2048"),
        *("--volume=/var/lib/edgellm:/var/lib/edgellm", "--device=nvidia.com/gpu=all"),
    ]
    assert options(paths, "--network=none")[:3] == ["--network=none", "--no-healthcheck", "--pids-limit=2048"]
    assert options(HostPaths(paths.root / "without")) == []


def test_changes_of_an_administrator_hold_in_an_upgrade_too(paths: HostPaths) -> None:
    shared, own = (f"{folder}/containers/systemd/edgellm-prewarm.container.d" for folder in ("usr/share", "etc"))
    write(paths.root, f"{shared}/10-disk.conf", "[Container]\nVolume=/nowhere:/nowhere\n")
    write(paths.root, f"{own}/10-disk.conf", "[Container]\nVolume = /mnt/disk:/mnt/disk\n[Service]\nVolume=/no:/no\n")
    write(paths.root, f"{own}/20-limits.conf", "[Container]\nPidsLimit=\nPidsLimit=64\nUlimit=nofile=10:10\n")
    write(paths.root, f"{own}/30-gpu.conf.off", "[Container]\nAddDevice=/dev/fuse\n")
    found = options(paths)
    assert [one for one in found if one.startswith("--volume")] == [
        "--volume=/var/lib/edgellm:/var/lib/edgellm",
        "--volume=/mnt/disk:/mnt/disk",
    ]
    assert [one for one in found if "limit" in one] == ["--pids-limit=64", "--ulimit=nofile=10:10"]
    assert "--device=nvidia.com/gpu=all" in found
    assert "--device=/dev/fuse" not in found


def test_variables_of_the_unit_hold_in_an_upgrade_too(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = 'HTTPS_PROXY=http://proxy:3128 "PIP_FIND_LINKS=one two" HF_ENDPOINT=https://hub/?a=b'
    monkeypatch.setattr(ServiceUnit, "properties", lambda *_args, **_kwargs: {"Environment": shown})
    assert ServiceUnit().environment(PREWARM) == {
        "HTTPS_PROXY": "http://proxy:3128",
        "PIP_FIND_LINKS": "one two",
        "HF_ENDPOINT": "https://hub/?a=b",
    }


def test_a_drop_in_without_the_unit_is_of_no_release(tmp_path: Path) -> None:
    write(tmp_path, "etc/containers/systemd/edgellm-prewarm.container.d/1.conf", "[Container]\nPidsLimit=1\n")
    assert options(HostPaths(tmp_path)) == []


def test_what_a_power_cut_left_of_brief_containers_is_found_also_where_podman_knows_it_in_its_store_alone() -> None:
    name = run_briefly()[-1].removeprefix("--name=")
    listed = [
        f"1a created {name}",
        f"2b storage {name}",
        f"3c running {name}",
        "4d exited edgellm",
        "5e exited other",
        "",
    ]
    assert _left_of(listed) == ["1a", "2b"]


def test_an_archive_tells_its_release_before_it_is_loaded(tmp_path: Path) -> None:
    archive = container_archive(tmp_path / "edgellm.tar", version="1.2.0")
    digest = hashlib.sha256(image_configuration("arm64", "1.2.0")).hexdigest()
    releases = ContainerReleases(HostPaths(tmp_path))
    assert releases.identify(Source(Kind.CONTAINER, image=archive)) == Release(Kind.CONTAINER, "1.2.0", digest)
    archive.write_bytes(ZSTD_BEGINNING + b"of a kind that only podman reads")
    assert releases.identify(Source(Kind.CONTAINER, image=archive)) is None
