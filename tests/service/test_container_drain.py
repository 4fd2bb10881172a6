"""A drain that is longer than the units allow for by themselves, in a container: what the page says must be enough."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from tests.lab.fixtures import MakeDevice
from tests.service.appliance import UNIT
from tests.service.conftest import Say
from tests.service.container_appliance import ContainerAppliance

# A worker that is silent for as long is not replaced.
CONFIGURATION = "[admission]\nshutdown_drain_seconds = 150.0\n[workers]\nping_deadline_seconds = 150.0\n"
DROP_IN = "[Service]\nEnvironment=STOP_SECONDS=180\nTimeoutStopSec=185s\n"
STREAM_SECONDS = 100  # more than the time that a stop has without the drop-in


@pytest.mark.thorough
def test_a_stream_of_more_than_a_minute_is_finished_before_the_stop(
    make_device: MakeDevice, container_rootfs: Path, image_archive: Path, model_folder: Path, say: Say
) -> None:
    made = ContainerAppliance.make_with_image(make_device, "drain", container_rootfs, image_archive, model_folder)
    appliance = made.serve()
    appliance.configure(CONFIGURATION)
    appliance.drop_in("drain", DROP_IN)
    appliance.device.run("systemctl", "restart", UNIT)
    (worker,) = appliance.worker_pids()
    with appliance.stream(max_tokens=400) as events:
        appliance.device.run("kill", "-STOP", str(worker))
        began = time.monotonic()
        stop = subprocess.Popen([*appliance.device.enter(), "systemctl", "stop", UNIT])
        appliance.device.wait_for(lambda: "finishing 1 running" in appliance.state()["StatusText"], "the drain")
        time.sleep(max(0.0, began + STREAM_SECONDS - time.monotonic()))
        assert appliance.state()["ActiveState"] == "deactivating"
        appliance.device.run("kill", "-CONT", str(worker))
        chunks = list(events)
        assert stop.wait(60) == 0
    say(f"container: stop with a drain of {STREAM_SECONDS} s and more: {time.monotonic() - began:.1f} s")
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    state = appliance.state()
    assert (state["ActiveState"], state["Result"], state["ExecMainStatus"]) == ("inactive", "success", "0")
