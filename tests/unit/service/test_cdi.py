"""CDI specs of both generations of NVIDIA's toolkit, and the podman that can or cannot read them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgellm.cli.main import main
from edgellm.errors import ConfigError
from edgellm.service.install import Target
from edgellm.service.install.cdi import FILE_BYTES_MAX, podman_version, read_spec, refusal_of

SPECS = Path(__file__).parent / "cdi_specs"
OLD, NEW = "toolkit-1.18.2", "toolkit-1.19.1"
PODMAN_4, PODMAN_5 = "4.9.3+ds1-1ubuntu0.2", "5.4.2+ds1-2+b1"


def system_with(root: Path, podman: str | None, spec: str | None, folder: str = "etc/cdi") -> Target:
    if podman is not None:
        (root / "var/lib/dpkg").mkdir(parents=True)
        (root / "var/lib/dpkg/status").write_text(
            "Package: podman-docker\nVersion: 1.0\n\n"
            f"Package: podman\nStatus: install ok installed\nDepends: libc6 (>= 2.38)\nVersion: {podman}\n\n"
        )
    if spec is not None:
        (root / folder).mkdir(parents=True)
        shutil.copy(SPECS / spec, root / folder / f"nvidia{Path(spec).suffix}")
    return Target(root)


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_specs_of_both_generations_are_read(suffix: str) -> None:
    old, new = read_spec(SPECS / f"{OLD}{suffix}"), read_spec(SPECS / f"{NEW}{suffix}")
    assert old.devices == new.devices == ("nvidia.com/gpu=0", "nvidia.com/gpu=all")
    assert (old.version, old.new_fields, old.is_readable_by_podman_4) == ((0, 5, 0), (), True)
    assert (new.version, new.new_fields, new.is_readable_by_podman_4) == ((0, 7, 0), ("additionalGids",), False)


@pytest.mark.parametrize("folder", ["etc/cdi", "run/cdi"])
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_an_old_podman_with_a_new_spec_is_named_with_the_remedy(tmp_path: Path, suffix: str, folder: str) -> None:
    refusal = refusal_of(system_with(tmp_path, PODMAN_4, f"{NEW}{suffix}", folder))
    assert "podman 4.9.3 " in refusal
    assert f"{tmp_path / folder}/nvidia{suffix} (CDI 0.7.0 with additionalGids)" in refusal
    assert "nvidia-container-toolkit from 1.19.1 on" in refusal
    assert "--feature-flag=no-additional-gids-for-device-nodes" in refusal


@pytest.mark.parametrize(("podman", "spec"), [(PODMAN_4, OLD), (PODMAN_5, OLD), (PODMAN_5, NEW), (None, NEW)])
def test_the_others_go_together(tmp_path: Path, podman: str | None, spec: str) -> None:
    assert refusal_of(system_with(tmp_path, podman, f"{spec}.yaml")) == ""


def test_a_field_that_the_old_schema_lacks_is_found_whatever_the_version_says(tmp_path: Path) -> None:
    target = system_with(tmp_path, PODMAN_4, f"{NEW}.yaml")
    spec = tmp_path / "etc/cdi/nvidia.yaml"
    spec.write_text(spec.read_text().replace("0.7.0", "0.5.0"))
    assert "(CDI 0.5.0 with additionalGids)" in refusal_of(target)


def test_a_system_without_a_spec_is_told_how_to_get_one(tmp_path: Path) -> None:
    refusal = refusal_of(system_with(tmp_path, PODMAN_5, None))
    assert "no CDI spec in /etc/cdi or /run/cdi has nvidia.com/gpu=all" in refusal
    assert "nvidia-ctk cdi generate" in refusal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cdiVersion: [",
        "a: b",
        "cdiVersion: x\nkind: k\ndevices: []",
        "- 1",
        "&a [*a]",
        "!!python/object:os.system {}",
    ],
)
def test_what_is_no_spec_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nvidia.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"nvidia\.yaml is no CDI spec"):
        read_spec(path)


def test_a_file_without_an_end_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.json"
    with path.open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    with pytest.raises(ConfigError, match="larger than"):
        read_spec(path)


def test_a_system_without_podman_has_no_version_of_it(tmp_path: Path) -> None:
    assert podman_version(Target(tmp_path)) is None


def test_install_says_it_before_a_container_fails_to_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    system_with(tmp_path, PODMAN_4, f"{NEW}.yaml")
    options = ["install", "--mode", "container", "--gpu", "yes", "--root", str(tmp_path), "--dry-run"]
    assert main(options) == 0
    assert "podman 4.9.3 cannot read" in capsys.readouterr().err
