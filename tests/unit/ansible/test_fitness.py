"""What preflight refuses, by what was found; nothing but the finding is asked of a board."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.ansible.collection import ROLES, plugin, program_output, write_files
from tests.unit.systemd.test_device_facts import ORIN_NX, OTHER_CARRIER, RASPBERRY, THOR, UNKNOWN_CHIP

yaml = pytest.importorskip("yaml", reason="needs Ansible: sh daemon/setup/run fleet")

GIB_BYTES = 1 << 30
DEFAULTS = yaml.safe_load((ROLES / "preflight/defaults/main.yml").read_text())
WANTED = {name.removeprefix("preflight_"): value for name, value in DEFAULTS.items()} | {
    "mode": "container",
    "cdi_rewritten": True,
}
ORIN_BOARD = {"module": "Orin NX 16GB", "sm": 87, "l4t": "R39.2.1"}
GOOD = {
    "architecture": "aarch64",
    "memory_bytes": 16 * GIB_BYTES,
    "disk": {"path": "/var/lib/edgellm", "free_bytes": 100 * GIB_BYTES},
    "python": "3.12.3",
    "python_venv": True,
    "systemd": "255",
    "podman": "4.9.3",
    "podman_candidate": "4.9.3",
    "nvidia_ctk": "1.18.2",
    "cdi": [],
    "board": ORIN_BOARD,
}

fitness_findings = plugin("filter/fitness").fitness_findings


def refused(found: dict[str, Any] | None = None, **wanted: Any) -> dict[str, str]:
    """What was found, by the name of each check that refuses."""
    findings = fitness_findings(GOOD | (found or {}), WANTED | wanted)
    return {row["check"]: row["found"] for row in findings if row["severity"] == "refuse"}


def test_a_board_that_has_everything_passes() -> None:
    assert fitness_findings(GOOD, WANTED) == []


@pytest.mark.parametrize(
    ("found", "check", "said"),
    [
        ({"architecture": "armv7l"}, "architecture", "armv7l"),
        ({"memory_bytes": 2 * GIB_BYTES}, "memory", "2048 MiB"),
        ({"memory_bytes": None}, "memory", "0 MiB"),
        ({"disk": {"path": "/data", "free_bytes": GIB_BYTES}}, "disk", "1024 MiB free for /data"),
        ({"systemd": "245"}, "systemd", "245"),
        ({"podman_candidate": "3.4.4"}, "podman", "3.4.4"),
        ({"podman_candidate": None}, "podman", "none"),
        ({"board": {"module": "Xavier NX", "sm": 72, "l4t": "R35.6"}}, "board", "Xavier NX (sm_72)"),
        ({"board": {"module": "Jetson of Tomorrow", "sm": None, "l4t": None}}, "board", "Jetson of Tomorrow (sm_?)"),
        ({"board": ORIN_BOARD | {"l4t": "R36.4.3"}}, "l4t", "R36.4.3"),
        ({"board": ORIN_BOARD | {"l4t": None}}, "l4t", "none"),
    ],
)
def test_a_lack_is_refused_with_what_was_found(found: dict[str, Any], check: str, said: str) -> None:
    assert refused(found) == {check: said}


def test_a_machine_without_a_gpu_passes_unless_a_board_is_asked_for() -> None:
    assert refused({"board": {}}) == {}
    assert refused({"board": {}}, board_required=True) == {"board": "no Jetson"}


def test_only_what_a_mode_needs_is_asked_for() -> None:
    assert refused({"podman_candidate": None}, mode="venv") == {}
    assert refused({"python": "3.10.12"}) == {}
    assert refused({"python": "3.10.12"}, mode="venv") == {"python": "3.10.12"}
    assert refused({"python_venv": False}, mode="venv") == {"python": "no ensurepip"}


def test_an_older_podman_and_a_newer_toolkit_are_both_named() -> None:
    newer = {"nvidia_ctk": "1.19.1"}
    (note,) = fitness_findings(GOOD | newer, WANTED)
    assert (note["severity"], note["check"]) == ("note", "cdi")
    assert note["found"] == "podman 4.9.3 and nvidia-container-toolkit 1.19.1"
    assert refused(newer, cdi_rewritten=False) == {"cdi": note["found"]}
    assert refused(newer | {"podman_candidate": "5.4.2"}, cdi_rewritten=False) == {}
    written = {"cdi": [{"file": "/etc/cdi/nvidia.yaml", "new_fields": ["additionalGids"]}]}
    assert "additionalGids" in refused(written, cdi_rewritten=False)["cdi"]


def test_a_finding_can_be_tolerated_by_its_name() -> None:
    assert refused({"systemd": "245"}, tolerated=["systemd"]) == {}


@pytest.mark.parametrize(
    ("files", "check"),
    [
        (ORIN_NX, "l4t"),  # of JetPack 6
        (THOR, None),
        (OTHER_CARRIER, None),
        (UNKNOWN_CHIP, "board"),
        (RASPBERRY, None),
    ],
    ids=["Orin NX", "Thor", "another carrier", "an unknown chip", "Raspberry Pi"],
)
def test_boards_are_judged_by_their_own_files(tmp_path: Any, files: dict[str, str], check: str | None) -> None:
    root = write_files(tmp_path / "root", files)
    board = program_output(ROLES / "preflight/files/device-facts", "--root", str(root))
    assert list(refused({"board": board})) == ([] if check is None else [check])


def test_facts_of_this_machine_can_be_judged() -> None:
    facts = program_output(ROLES / "preflight/files/host-facts", "--disk-path", "/var/lib/not/there/yet")
    assert facts["disk"]["free_bytes"] > 0
    assert facts["memory_bytes"] > 0
    fitness_findings(facts | {"board": {}}, WANTED)


def test_fields_of_a_cdi_specification_that_an_older_podman_refuses_are_found(tmp_path: Any) -> None:
    newer = "cdiVersion: 0.7.0\ndevices:\n- name: all\n  containerEdits:\n    additionalGids:\n    - 44\n"
    root = write_files(tmp_path, {"etc/cdi/nvidia.yaml": newer, "run/cdi/other.json": '{"cdiVersion": "0.5.0"}'})
    facts = program_output(ROLES / "preflight/files/host-facts", "--root", f"{root}/", "--disk-path", "/var")
    assert facts["cdi"] == [
        {"file": "/etc/cdi/nvidia.yaml", "new_fields": ["additionalGids"]},
        {"file": "/run/cdi/other.json", "new_fields": []},
    ]
