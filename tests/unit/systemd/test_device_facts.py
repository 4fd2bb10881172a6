"""The program that writes the device file: boards by what their hosts show, other machines by nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.systemd.unit_file import SYSTEMD

from edgellm.engines.tensorrt.device_file import read_device_file

PROGRAM = SYSTEMD / "both/usr/local/lib/edgellm/device-facts"

# As the hosts of these boards show themselves.
ORIN_NX = {
    "proc/device-tree/compatible": "nvidia,p3768-0000+p3767-0000-super\0nvidia,p3767-0000\0nvidia,tegra234\0",
    "proc/device-tree/model": "NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super\0",
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, "
    "DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\n",
    "proc/meminfo": "MemTotal:       16007488 kB\nMemFree:        11000000 kB\n",
}
THOR = {
    "proc/device-tree/compatible": "nvidia,p4071-0000+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264\0",
    "proc/device-tree/model": "NVIDIA Jetson AGX Thor Developer Kit\0",
    "etc/nv_tegra_release": "# R38 (release), REVISION: 2.2, GCID: 42205042, BOARD: generic, EABI: aarch64, "
    "DATE: Thu Sep 25 22:47:11 UTC 2025\n# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\n",
    "proc/meminfo": "MemTotal:       128775104 kB\n",
}
OTHER_CARRIER = {
    "proc/device-tree/compatible": "acme,board-7\0nvidia,p3701-0005\0nvidia,tegra234\0",
    "proc/device-tree/model": "Acme Board 7\0",
    "etc/nv_tegra_release": "# R39 (release), REVISION: 2.1, GCID: 1, BOARD: generic, EABI: aarch64, DATE: x\n",
}
UNKNOWN_CHIP = {
    "proc/device-tree/compatible": "nvidia,p9999-0001\0nvidia,tegra999\0",
    "proc/device-tree/model": "NVIDIA Jetson of Tomorrow\0",
}
RASPBERRY = {
    "proc/device-tree/compatible": "raspberrypi,5-model-b\0brcm,bcm2712\0",
    "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
    "proc/meminfo": "MemTotal:        8000000 kB\n",
}


def write_files(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def run_program(root: Path, output: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(PROGRAM), "--root", str(root), "--output", str(output)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (ORIN_NX, {"module": "Orin NX 16GB", "l4t": "R36.4.3", "sm": 87, "memory_bytes": 16007488 * 1024}),
        (THOR, {"module": "AGX Thor T5000", "l4t": "R38.2.2", "sm": 110, "memory_bytes": 128775104 * 1024}),
        (OTHER_CARRIER, {"module": "AGX Orin 64GB", "model": "Acme Board 7", "l4t": "R39.2.1", "memory_bytes": None}),
        (UNKNOWN_CHIP, {"module": "NVIDIA Jetson of Tomorrow", "l4t": None, "sm": None}),
    ],
    ids=["Orin NX", "Thor", "another carrier", "an unknown chip"],
)
def test_boards_are_declared(tmp_path: Path, files: dict[str, str], expected: dict[str, Any]) -> None:
    output = tmp_path / "device.json"
    completed = run_program(write_files(tmp_path / "root", files), output)
    assert completed.returncode == 0, completed.stderr
    facts = json.loads(output.read_text())
    assert {name: facts[name] for name in expected} == expected
    declared = read_device_file(output)
    assert declared is not None
    assert declared.module == expected["module"]
    assert declared.sm == facts["sm"]
    assert declared.l4t == (facts["l4t"] and facts["l4t"].rpartition(".")[0])
    assert output.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("files", [RASPBERRY, {}], ids=["another board", "no board"])
def test_other_machines_are_declared_nothing_and_lose_an_old_declaration(tmp_path: Path, files: dict[str, str]) -> None:
    output = tmp_path / "device.json"
    output.write_text("{}")
    completed = run_program(write_files(tmp_path / "root", files), output)
    assert completed.returncode == 0, completed.stderr
    assert not output.exists()


def test_a_damaged_device_tree_never_leaves_half_a_file(tmp_path: Path) -> None:
    files = {"proc/device-tree/model": "\x1b[31mBad\n\0", "etc/nv_tegra_release": "# R39 (release), REVISION: x"}
    root = write_files(tmp_path / "root", files)
    (root / "proc/device-tree/compatible").write_bytes(b"\xff\xfe\0nvidia,tegra234\0")
    output = tmp_path / "device.json"
    assert run_program(root, output).returncode == 0
    facts = json.loads(output.read_text())
    assert facts["module"] == "[31mBad"
    assert facts["l4t"] is None
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".device-")] == []


def test_a_folder_that_is_not_there_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    completed = run_program(write_files(tmp_path / "root", ORIN_NX), tmp_path / "absent/device.json")
    assert completed.returncode == 73
    assert completed.stderr.startswith("edgellm: ")
    assert "Traceback" not in completed.stderr


def test_it_needs_nothing_but_a_python() -> None:
    assert os.access(PROGRAM, os.X_OK)
    assert PROGRAM.read_text().startswith("#!/usr/bin/env python3\n")
