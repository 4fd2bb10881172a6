"""What a machine is and which payload fits it: our verdict is the one of NVIDIA's own loader."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.nvidia_binary import NvidiaBinary
from tests.contract.nvidia_verdicts import ask
from tests.unit.engines.jetson_platforms import ORIN, ORIN_IN_A_CONTAINER, THOR, UBUNTU, manifest, tegra_release

from edgellm.engines.tensorrt.library_probe import Libraries, probe_libraries
from edgellm.engines.tensorrt.payloads import Host, parse_payloads, read_payloads, select_payload
from edgellm.engines.tensorrt.release import read_release
from edgellm.errors import RuntimeUnavailableError

ORIN_HOST = Host("cp312", "aarch64", "l4t", "R39.2", "libcudart.so.13", "libnvinfer.so.10", 87)
DRIVER_SOURCE = """
#include <unistd.h>
__attribute__((constructor)) static void greet(void) {{ if (write(1, "hello", 5) != 5) _exit(9); }}
static int sm(int device) {{ const int sms[] = {{ {sms} }}; return sms[device]; }}
int cuInit(unsigned flags) {{ return {status}; }}
int cuDriverGetVersion(int *version) {{ *version = 13020; return 0; }}
int cuDeviceGetCount(int *count) {{ *count = {count}; return 0; }}
int cuDeviceGetAttribute(int *value, int attribute, int device) {{
    *value = attribute == 75 ? sm(device) / 10 : attribute == 76 ? sm(device) % 10 : -1;
    return 0;
}}
"""


def ours(host: Host, listed: dict[str, Any]) -> str | None:
    try:
        return select_payload(host, parse_payloads(listed)).variant_id
    except RuntimeUnavailableError:
        return None


def as_detected(host: Host) -> dict[str, Any]:
    return {
        "python_abi": host.python_abi,
        "platform_probe_source": host.probe_source,
        "platform_probe_value": host.probe_value,
        "cpu_arch": host.cpu_arch,
        "cuda_runtime_soname": host.cuda_runtime,
        "tensorrt_runtime_soname": host.tensorrt_runtime,
        "gpu_sm": host.sm,
    }


def hosts() -> list[Host]:
    platforms = (
        ("l4t", "R36.4"),
        ("l4t", "R38.2"),
        ("l4t", "R38.4"),
        ("l4t", "R39.2"),
        ("device-model", "NVIDIA IGX Thor Developer Kit"),
        ("device-model", "nvidia dgx spark"),
        ("device-model", "R39.2"),
        ("driveos", "7.2"),
        ("os-release", "ubuntu:22.04"),
        ("os-release", "ubuntu:24.04"),
        ("os-release", "ubuntu:26.04"),
    )
    rest = itertools.product(
        ("cp311", "cp312"),
        ("x86_64", "aarch64"),
        platforms,
        ("libcudart.so.12", "libcudart.so.13"),
        ("libnvinfer.so.10", "libnvinfer.so.11"),
        (80, 86, 87, 100, 110, 120, 121),
    )
    return [Host(abi, arch, *platform, cuda, nvinfer, sm) for abi, arch, platform, cuda, nvinfer, sm in rest]


def test_the_payload_is_the_one_that_the_loader_selects(nvidia_binary: NvidiaBinary) -> None:
    published = json.loads((nvidia_binary.site / "tensorrt_edgellm/_native/variants.json").read_text())
    asked = hosts()
    for listed in (published, manifest(("cp311", "cp312"))):
        verdicts = ask(
            nvidia_binary.site,
            "payload",
            [{"manifest": listed, "platform": as_detected(host)} for host in asked],
        )
        assert [ours(host, listed) for host in asked] == verdicts
        assert {row["variant_id"] for row in listed["variants"]} == set(verdicts) - {None}


def test_the_list_of_the_published_wheel_is_read(nvidia_binary: NvidiaBinary) -> None:
    payloads = read_payloads(nvidia_binary.site / "tensorrt_edgellm")
    assert payloads is not None
    assert "x86-ubuntu2404-cu13-sm100-trt11" in {payload.variant_id for payload in payloads}
    assert all(payload.extension.endswith(".so") for payload in payloads)
    assert read_payloads(nvidia_binary.site / "experimental") is None


@pytest.mark.parametrize(
    "damage",
    [
        {"schema_version": 2},
        {"variants": []},
        {"variants": ["row"]},
        {"variants": [{}]},
        {"variants": [{**manifest()["variants"][0], "platform_probe_values": []}]},
        {"variants": [{name: value for name, value in manifest()["variants"][0].items() if name != "cpu_arch"}]},
    ],
)
def test_a_damaged_list_is_refused_by_both(damage: dict[str, Any], nvidia_binary: NvidiaBinary) -> None:
    listed = {**manifest(), **damage}
    (verdict,) = ask(nvidia_binary.site, "payload", [{"manifest": listed, "platform": as_detected(ORIN_HOST)}])
    assert verdict not in (None, "jetson-orin-jp72-cu13-sm87")
    with pytest.raises(ValueError, match=r"schema_version|payload|variants|platform_probe_values"):
        parse_payloads(listed)


def roots(folder: Path) -> list[Path]:
    models = {
        "igx": "NVIDIA IGX Thor Developer Kit\0",
        "spark": "NVIDIA DGX Spark\0",
        "orin": "NVIDIA Jetson AGX Orin\0",
        "board": "Raspberry Pi 5\0",
    }
    markers: dict[str, dict[str, str]] = {
        "empty": {},
        "ubuntu": {"etc/os-release": UBUNTU},
        "debian": {"etc/os-release": 'ID=debian\nVERSION_ID="12"\n'},
        "commented": {"etc/os-release": '#ID=debian\n ID = "ubuntu"\nVERSION_ID=22.04\n'},
        "orin": ORIN.markers,
        "contained": ORIN_IN_A_CONTAINER.markers,
        "thor": THOR.markers,
        "thor-7.2": {"etc/nv_tegra_release": tegra_release(39, "2.0")},
        "short": {"etc/nv_tegra_release": "R36.4.3\n"},
        "unreadable": {"etc/nv_tegra_release": "release unknown\n"},
        "drive": {"etc/driveos-release": 'VERSION_ID="7.2.1"\n', **ORIN.markers},
        "drive-version": {"etc/driveos-release": "VERSION=DRIVE OS 7.0\n"},
        "drive-none": {"etc/driveos-release": "VERSION_ID=seven\n"},
        "drive-root": {"etc/nvidia/version-ubuntu-rootfs.txt": "7.2.0.0-1234\n"},
        "drive-root-igx": {
            "etc/nvidia/version-ubuntu-rootfs.txt": "7.2.0.0-1234\n",
            "proc/device-tree/model": models["igx"],
        },
        "dmi-spark": {"sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n", "etc/os-release": UBUNTU},
        "dmi-pc": {"sys/class/dmi/id/product_name": "ThinkPad\n", "etc/os-release": UBUNTU},
        **{f"model-{name}": {"proc/device-tree/model": text} for name, text in models.items()},
        "igx-on-l4t": {"proc/device-tree/model": models["igx"], "etc/nv_tegra_release": tegra_release(39, "2.0")},
    }
    return [replace(ORIN, markers=files).write(folder / name) for name, files in markers.items()]


def test_the_platform_is_what_the_loader_sees(nvidia_binary: NvidiaBinary, tmp_path: Path) -> None:
    cases = [
        {"root": f"{root}", "cpu_arch": cpu_arch} for root in roots(tmp_path) for cpu_arch in ("x86_64", "aarch64")
    ]
    for case, verdict in zip(cases, ask(nvidia_binary.site, "release", cases), strict=True):
        release = read_release(Path(case["root"]), case["cpu_arch"])
        assert ([release.source, release.value] if release.source else None) == verdict, case
        assert bool(release.problem) == (verdict is None)


@pytest.mark.parametrize(
    ("sms", "status"), [([87], 0), ([110], 0), ([120, 110], 0), ([86, 86], 0), ([], 0), ([], 100), ([87], 999)]
)
def test_the_driver_is_read_as_the_loader_reads_it(
    sms: list[int], status: int, nvidia_binary: NvidiaBinary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a library in the driver's place that answers as a driver does."""
    source = DRIVER_SOURCE.format(sms=", ".join(map(str, sms or [0])), count=len(sms), status=status)
    library = tmp_path / "libcuda.so.1"
    compiler = os.environ.get("CC", "cc").split()
    options = ["-shared", "-fPIC", "-x", "c", "-", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run([*compiler, *options], input=source, text=True, check=True, timeout=60)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (verdict,) = ask(nvidia_binary.site, "gpus", [{}])
    found = probe_libraries()
    assert list(found.sms) == (verdict or [])
    assert (not found.driver.problem) == (status in (0, 100))
    assert found.driver.version == "13.2"


def test_a_probe_that_hangs_or_crashes_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = os.environ.get("CC", "cc").split()
    options = ["-shared", "-fPIC", "-x", "c", "-", "-Wl,-soname,libcuda.so.1", "-o", str(tmp_path / "libcuda.so.1")]
    for source, problem in (
        ("#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }", "ended with status -6"),
        ("#include <unistd.h>\n__attribute__((constructor)) static void f(void) { sleep(600); }", "took more than 3 s"),
    ):
        subprocess.run([*compiler, *options], input=source, text=True, check=True, timeout=60)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        found = probe_libraries(timeout_seconds=3)
        assert problem in found.driver.problem
        assert found == Libraries(found.driver, found.driver, found.driver)


def test_the_published_package_on_a_machine_without_a_gpu_is_told_piece_by_piece(
    nvidia_binary: NvidiaBinary, tmp_path: Path
) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("EDGELLM_")},
        "PYTHONPATH": str(nvidia_binary.site),
        "EDGELLM_CACHE_DIR": str(tmp_path),
        "XDG_CONFIG_HOME": "/nonexistent",
    }
    device = tmp_path / "device.json"
    device.write_text('{"module": "Orin NX 16GB", "l4t": "R39.2.1", "sm": 87}')
    for declared, code, kind in ((None, 0, "auto takes native (no TensorRT: "), (device, 68, "declares a Jetson")):
        done = subprocess.run(
            [sys.executable, "-m", "edgellm", "doctor", "--json"],
            env=environment if declared is None else {**environment, "EDGELLM_DEVICE_FILE": str(declared)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        findings = {entry["subject"]: entry for entry in json.loads(done.stdout)["findings"]}
        assert findings["TensorRT wheel"]["right"]
        assert findings["TensorRT wheel"]["text"] == "tensorrt-edgellm 0.11.0"
        assert not findings["TensorRT payload"]["right"]
        assert "no payload of tensorrt-edgellm fits this machine; the nearest, " in findings["TensorRT payload"]["text"]
        assert kind in findings["runtime"]["text"]


def test_the_current_folder_is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "edgellm.py").write_text("raise SystemExit(7)\n")
    (tmp_path / "json.py").write_text("raise SystemExit(8)\n")
    monkeypatch.chdir(tmp_path)
    assert "ended with status" not in probe_libraries().driver.problem
