"""The device file declares a Jetson, whatever it says; what it says is taken where it can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgellm.engines.tensorrt.device_file import DeclaredDevice, read_device_file


def test_without_the_file_nothing_is_declared(tmp_path: Path) -> None:
    assert read_device_file(tmp_path / "absent.json") is None


def test_what_the_host_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text('{"module": "AGX Thor", "l4t": "R38.4.0", "sm": 110, "memory_bytes": 1, "groups": {"video": 44}}')
    device = read_device_file(path)
    assert device == DeclaredDevice(path, "AGX Thor", "R38.4", 110)
    assert str(device) == "a Jetson (AGX Thor)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 50_000,
        '{"module": 3, "l4t": 39, "sm": "87"}',
        '{"module": "a\\nb", "l4t": "39.2", "sm": true}',
        '{"l4t": "R39", "sm": -1}',
    ],
)
def test_what_cannot_be_read_still_declares(text: str, tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(text)
    assert read_device_file(path) == DeclaredDevice(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_declares(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text("{}")
    path.chmod(0)
    assert read_device_file(path) == DeclaredDevice(path)
