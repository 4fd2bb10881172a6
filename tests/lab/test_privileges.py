"""Tests that mount skip with the reason where root may not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lab.privileges import missing_privileges


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(("held", "reason"), [("000001ffffffffff", ""), ("00000000a80425fb", "needs CAP_SYS_ADMIN")])
def test_root_is_asked_for_what_mounting_takes(held: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "status").write_text(f"Name:\tpython\nCapPrm:\t{held}\nCapEff:\t{held}\n")
    assert missing_privileges(tmp_path / "status").startswith(reason)
    assert bool(missing_privileges(tmp_path / "status")) == bool(reason)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_root_without_the_capability_knows_that_it_may_not_mount() -> None:
    code = "from tests.lab.privileges import missing_privileges; print(missing_privileges())"
    command = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("needs CAP_SYS_ADMIN")
