"""What the server may do on a device, and what anybody may do with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.service.appliance import UNIT, Appliance
from tests.service.conftest import MakeAppliance, Say

from edgellm.service.install import Mode, Target, install_files, system_files
from edgellm.service.install.installation import USER_NUMBER

EXPOSURE_MAX = 2.0
OWN_UNITS = (
    *("edgellm.service", "edgellm-prewarm.service", "edgellm-device-facts.service", "edgellm-announce.service"),
)
# To compare with: what a unit has by itself, and one that names a user and leaves it at that.
OTHERS = {
    "without confinement": "[Service]\nExecStart=/usr/bin/true\n",
    "with a user of its own alone": "[Service]\nExecStart=/usr/bin/true\nUser=daemon\n",
}
SERVERS = ("haproxy.service", "prometheus.service")


def exposure_of(root: Path, unit: str) -> float:
    command = ["systemd-analyze", "security", "--offline=true", f"--root={root}", "--no-pager", unit]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    (found,) = re.findall(rf"Overall exposure level for {re.escape(unit)}: ([\d.]+)", printed)
    return float(found)


@pytest.mark.parametrize("gpu", [False, True], ids=["without a GPU", "with its GPU drop-in"])
def test_units_are_confined(rootfs: Path, tmp_path: Path, gpu: bool, say: Say) -> None:
    assert shutil.which("systemd-analyze"), "a machine that runs devices has it"
    target = Target(tmp_path)
    install_files(Mode.VENV, target, system_files(Mode.VENV, target, gpu=gpu))
    exposures = {unit: exposure_of(tmp_path, unit) for unit in OWN_UNITS}
    say(f"exposure {'with' if gpu else 'without'} a GPU: {exposures}")
    assert all(exposure <= EXPOSURE_MAX for exposure in exposures.values()), exposures


def test_other_servers_are_confined_less(tmp_path: Path, say: Say) -> None:
    units = tmp_path / "usr/local/lib/systemd/system"
    units.mkdir(parents=True)
    exposures = {}
    for number, (what, text) in enumerate(OTHERS.items()):
        (units / f"other-{number}.service").write_text(text)
        exposures[what] = exposure_of(tmp_path, f"other-{number}.service")
    for name in SERVERS:
        unit = Path("/lib/systemd/system") / name
        if unit.exists():
            shutil.copy(unit, units / name)
            exposures[name] = exposure_of(tmp_path, name)
    say(f"exposure of others: {exposures}")
    assert all(exposures[what] > EXPOSURE_MAX for what in OTHERS)


@pytest.fixture(scope="module")
def appliance_and_key(make_appliance: MakeAppliance) -> tuple[Appliance, str]:
    made = make_appliance("confinement").serve()
    said = made.device.run("/usr/local/bin/edgellm", "keys", "add", "phone").output.splitlines()
    (key,) = [line for line in said if line.startswith("edgellm-")]
    made.configure('[server]\napi_keys_file = "/run/credentials/edgellm.service/api-keys"\n')
    made.device.run("systemctl", "restart", UNIT)
    return made, key


@pytest.fixture
def appliance(appliance_and_key: tuple[Appliance, str]) -> Appliance:
    return appliance_and_key[0]


@pytest.fixture
def key(appliance_and_key: tuple[Appliance, str]) -> str:
    return appliance_and_key[1]


def test_processes_have_no_rights(appliance: Appliance) -> None:
    (worker,) = appliance.worker_pids()
    for pid in (appliance.pid(), worker):
        status = dict(
            line.split(":\t", 1) for line in appliance.device.read(f"/proc/{pid}/status").splitlines() if ":\t" in line
        )
        assert set(status["Uid"].split()) == {str(USER_NUMBER)}
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")
        assert re.search(r"^Max core file size +0 +0 ", appliance.device.read(f"/proc/{pid}/limits"), re.MULTILINE)


def test_it_writes_only_its_own_folders(appliance: Appliance) -> None:
    inside = (
        "nsenter",
        "-t",
        str(appliance.pid()),
        "-m",
        "setpriv",
        "--reuid=edgellm",
        "--regid=edgellm",
        "--clear-groups",
    )
    found = appliance.device.run(
        *inside, "find", "/", "-xdev", "-writable", "-type", "d", "-not", "-path", "/proc/*", check=False
    )
    print(found.output)
    top = {path for path in found.output.splitlines() if path.startswith("/")}
    assert all(path.startswith(("/var/lib/edgellm", "/run/edgellm", "/tmp", "/var/tmp", "/dev")) for path in top), top


def test_only_the_expected_sockets_listen(appliance: Appliance) -> None:
    listening = appliance.device.run("ss", "--no-header", "-ltnup").output.splitlines()
    assert [line.split()[4] for line in listening] == ["0.0.0.0:8000"]
    unix = appliance.device.run("ss", "--no-header", "-lxp").output.splitlines()
    processes = [f"pid={pid}," for pid in (appliance.pid(), *appliance.worker_pids())]
    own = [line.split()[4] for line in unix if any(process in line for process in processes)]
    assert own == ["/run/edgellm/admin.sock"]


def test_keys_reach_the_server_as_credentials_and_nobody_else(appliance: Appliance, key: str) -> None:
    assert appliance.chat().status_code == 401
    fields = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    assert appliance.request("/v1/chat/completions", fields, Authorization=f"Bearer {key}").status_code == 200
    kept = "/etc/edgellm/credentials/api-keys"
    assert key not in appliance.device.read(kept)
    assert appliance.device.run("stat", "-c", "%U:%G %a", kept).output == "root:edgellm 640\n"
    for path in (kept, "/run/credentials/edgellm.service/api-keys"):
        read = appliance.device.run(
            "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "cat", path, check=False
        )
        assert read.code != 0
    assert key not in appliance.device.journal()


def test_prompts_are_in_no_journal_and_no_core_file(appliance: Appliance, key: str) -> None:
    fields = {"messages": [{"role": "user", "content": "canary-5d41402a"}], "max_tokens": 4}
    assert appliance.request("/v1/chat/completions", fields, Authorization=f"Bearer {key}").status_code == 200
    appliance.device.run("kill", "-ABRT", str(appliance.worker_pids()[0]))
    appliance.device.run("kill", "-ABRT", str(appliance.pid()))
    appliance.device.wait_for(lambda: appliance.restarts() == 1 and appliance.is_active(), "the restart", 120)
    assert "canary-5d41402a" not in appliance.device.journal()
    found = appliance.device.run("grep", "-rl", "canary-5d41402a", "/var/lib", "/var/tmp", "/tmp", "/run", check=False)
    assert found.output == ""
