"""Files of a board's tools, and names of units."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from tests.unit.ansible.collection import plugin

board_tools = plugin("filter/board_tools")

# As an Orin Nano has it, in part.
NVPMODEL_CONF = """\
# Used by nvpmodel
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_1 /sys/devices/system/cpu/cpu1/online
# < POWER_MODEL ID=9 NAME=GONE >
< POWER_MODEL ID=0 NAME=15W >
CPU_ONLINE CORE_1 1
< POWER_MODEL ID=1 NAME=25W >
CPU_ONLINE CORE_1 1
< POWER_MODEL ID=2 NAME=MAXN_SUPER >
< PM_CONFIG DEFAULT=1 >
"""


@pytest.mark.parametrize(
    ("wanted", "number"), [("15W", 0), ("1", 1), ("maxn_super", 2), ("MAXN", -1), ("GONE", -1), ("9", -1)]
)
def test_power_modes_are_found_by_number_or_name(wanted: str, number: int) -> None:
    assert board_tools.power_mode_id(NVPMODEL_CONF, wanted) == number


@pytest.mark.parametrize("path", ["/swapfile", "/var/lib/edgellm.swap", "/data/a-b/swap file", "/.hidden/x"])
def test_paths_are_named_as_systemd_names_them(path: str) -> None:
    if shutil.which("systemd-escape") is None:
        pytest.skip("needs systemd-escape")
    said = subprocess.run(["systemd-escape", "--path", path], capture_output=True, text=True, check=True).stdout.strip()
    assert board_tools.systemd_path(path) == said
