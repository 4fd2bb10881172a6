"""Boards as edgellm meets them: their release markers, libraries and the payloads that NVIDIA publishes for them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgellm.engines.tensorrt.device_file import read_device_file
from edgellm.engines.tensorrt.library_probe import Libraries, Library
from edgellm.engines.tensorrt.payloads import parse_payloads
from edgellm.engines.tensorrt.platform_facts import PlatformFacts
from edgellm.engines.tensorrt.release import read_release

# variant, marker, its values, SM, as the 0.11.0 wheel for aarch64 lists them; all for CUDA 13 and TensorRT 10.
PUBLISHED = (
    ("jetson-orin-jp72-cu13-sm87", "l4t", ["R39.2"], 87),
    ("jetson-thor-jp70-cu13-sm110", "l4t", ["R38.2"], 110),
    ("jetson-thor-jp71-cu13-sm110", "l4t", ["R38.4"], 110),
    ("jetson-thor-jp72-cu13-sm110", "l4t", ["R39.2"], 110),
    ("igx-thor-cu13-sm110-sm120", "device-model", ["NVIDIA IGX Thor"], 110),
    ("igx-thor-cu13-sm110-sm120", "device-model", ["NVIDIA IGX Thor"], 120),
    ("dgx-spark-cu13-sm121", "device-model", ["DGX Spark", "GB10"], 121),
    ("drive-thor-d72-cu13-sm110", "driveos", ["7.2"], 110),
)


def manifest(python_abis: tuple[str, ...] = ("cp312",)) -> dict[str, Any]:
    """The list of payloads of the aarch64 wheels, in their form."""
    rows = [
        {
            "variant_id": variant,
            "python_abi": python_abi,
            "platform_family": variant.split("-")[0],
            "platform_release": values[0],
            "platform_probe_source": source,
            "platform_probe_values": values,
            "cpu_arch": "aarch64",
            "cuda_runtime_soname": "libcudart.so.13",
            "tensorrt_runtime_soname": "libnvinfer.so.10",
            "gpu_sm": sm,
            "extension": f"_native/payloads/{variant}/_edgellm_runtime.so",
            "plugin": f"_native/payloads/{variant}/lib/libNvInfer_edgellm_plugin.so",
            "extension_sha256": "0" * 64,
            "plugin_sha256": "1" * 64,
            "source_revision": "2" * 40,
            "cutedsl_metadata_sha256": "3" * 64,
        }
        for variant, source, values, sm in PUBLISHED
        for python_abi in python_abis
    ]
    return {"schema_version": 1, "variants": rows}


@dataclass(frozen=True)
class Board:
    """``markers`` are files below the root, by name."""

    module: str
    markers: dict[str, str]
    sm: int
    l4t: str

    def write(self, root: Path) -> Path:
        for name, text in self.markers.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    def facts(self, folder: Path) -> PlatformFacts:
        """The facts of a board where everything is installed as it should be."""
        root = self.write(folder / "root")
        device = folder / "device.json"
        device.write_text(json.dumps({"module": self.module, "l4t": self.l4t, "sm": self.sm, "memory_bytes": 1}))
        return PlatformFacts(
            python_abi="cp312",
            cpu_arch="aarch64",
            release=read_release(root, "aarch64"),
            libraries=Libraries(
                driver=Library("libcuda.so.1", "13.2"),
                cuda_runtime=Library("libcudart.so.13", "13.2"),
                tensorrt=Library("libnvinfer.so.10", "10.16.0.72"),
                sms=(self.sm,),
            ),
            wheel_version="0.11.0",
            bindings_version="10.16.0.72",
            cuda_bindings_version="13.0.3",
            payloads=parse_payloads(manifest()),
            device=read_device_file(device),
        )


UBUNTU = 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n'


def tegra_release(major: int, revision: str) -> str:
    return (
        f"# R{major} (release), REVISION: {revision}, GCID: 41234567, BOARD: generic, EABI: aarch64, "
        "DATE: Tue Mar  3 10:22:15 UTC 2026\n# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\n"
    )


ORIN = Board(
    "Orin NX 16GB",
    {
        "etc/nv_tegra_release": tegra_release(39, "2.1"),
        "etc/os-release": UBUNTU,
        "proc/device-tree/model": "NVIDIA Jetson Orin NX Engineering Reference Developer Kit\0",
    },
    87,
    "R39.2.1",
)
THOR = Board(
    "AGX Thor",
    {
        "etc/nv_tegra_release": tegra_release(38, "4.0"),
        "etc/os-release": UBUNTU,
        "proc/device-tree/model": "NVIDIA Jetson AGX Thor Developer Kit\0",
    },
    110,
    "R38.4.0",
)
# The device tree cannot be seen in a container.
ORIN_IN_A_CONTAINER = replace(ORIN, markers={name: ORIN.markers[name] for name in list(ORIN.markers)[:2]})
