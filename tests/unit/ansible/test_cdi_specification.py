"""The description of a GPU, as podman before 5 takes it and as newer ones get it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.ansible.collection import ROLES

PROGRAM = ROLES / "container_runtime/files/cdi-specification"
# As nvidia-ctk 1.19.1 describes a Jetson, in part.
NEWER: dict[str, Any] = {
    "cdiVersion": "0.7.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {
            "name": name,
            "containerEdits": {
                "deviceNodes": [{"path": "/dev/nvhost-gpu", "hostPath": "/dev/nvhost-gpu"}],
                "additionalGids": [44, 104],
            },
        }
        for name in ("0", "all")
    ],
    "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "mounts": [{"hostPath": "/usr/lib/x", "containerPath": "/usr/lib/x", "options": ["ro", "bind"]}],
        "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook"]}],
        "netDevices": [{"hostInterfaceName": "eth0", "name": "eth0"}],
    },
}


def write(folder: Path, content: object, *options: str) -> subprocess.CompletedProcess[str]:
    source = folder / "made.json"
    source.write_text(json.dumps(content))
    argv = [sys.executable, "-I", str(PROGRAM), "--from", str(source), "--output", str(folder / "cdi/nvidia.yaml")]
    return subprocess.run([*argv, *options], capture_output=True, text=True, check=False)


def written(folder: Path) -> Any:
    return json.loads((folder / "cdi/nvidia.yaml").read_text())


def test_an_older_podman_gets_the_same_devices_without_newer_fields(tmp_path: Path) -> None:
    assert write(tmp_path, NEWER, "--podman-major", "4").returncode == 0
    found = written(tmp_path)
    assert found["cdiVersion"] == "0.6.0"
    assert [device["name"] for device in found["devices"]] == ["0", "all"]
    assert found["devices"][1]["containerEdits"] == {
        "deviceNodes": NEWER["devices"][0]["containerEdits"]["deviceNodes"]
    }
    assert {name: found["containerEdits"].get(name) for name in NEWER["containerEdits"]} == {
        **NEWER["containerEdits"],
        "netDevices": None,
    }


def test_a_newer_podman_gets_it_as_it_was_made(tmp_path: Path) -> None:
    assert write(tmp_path, NEWER, "--podman-major", "5").returncode == 0
    assert written(tmp_path) == NEWER
    assert write(tmp_path, NEWER, "--podman-major", "4", "--as-is").returncode == 0
    assert written(tmp_path) == NEWER


def test_what_describes_no_gpu_is_refused_and_what_was_there_stays(tmp_path: Path) -> None:
    assert write(tmp_path, NEWER, "--podman-major", "5").returncode == 0
    refused = write(tmp_path, {"kind": "acme.com/nic"}, "--podman-major", "4")
    assert refused.returncode == 69
    assert refused.stderr.startswith("edgellm: ")
    assert "Traceback" not in refused.stderr
    assert written(tmp_path) == NEWER
