"""The server in its container, run by the unit that podman makes of edgellm.container: as true as the one without."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.lab.container_image import CURRENT
from tests.lab.fixtures import MakeDevice
from tests.service.appliance import ENGINES, LONG, PREWARM, READY_SECONDS, READY_TARGET, UNIT
from tests.service.boot_times import boot_times
from tests.service.conftest import Say
from tests.service.container_appliance import CONTAINER, WRAPPER, ContainerAppliance
from tests.unit.systemd.test_device_facts import ORIN_NX, write_files

from edgellm.service.install.installation import USER_NUMBER

WATCHDOG = "[Service]\nWatchdogSec=6s\n"
PATIENT = "[workers]\nping_deadline_seconds = 90.0\n"
STREAM_SECONDS = 16  # podman's own patience ends after 10
FACTS_UNIT = "edgellm-device-facts.service"
KEYS_FILE = "/run/credentials/edgellm.service/api-keys"


@pytest.fixture(scope="module")
def appliance(
    make_device: MakeDevice, container_rootfs: Path, image_archive: Path, model_folder: Path
) -> ContainerAppliance:
    made = ContainerAppliance.make_with_image(make_device, "quadlet", container_rootfs, image_archive, model_folder)
    made.boot()
    return made


def test_it_is_installed_from_the_image_and_the_second_time_changes_nothing(
    appliance: ContainerAppliance, say: Say
) -> None:
    began = time.monotonic()
    appliance.load()
    say(f"podman load of the image: {time.monotonic() - began:.1f} s")
    assert appliance.install().output.splitlines()[-1] == "container, without a GPU: installed"
    assert appliance.install().output.splitlines()[-1] == "container, without a GPU: nothing changed"
    assert appliance.device.run("id", "-u", "edgellm").output == f"{USER_NUMBER}\n"
    assert "network-online.target" not in appliance.device.unit(UNIT, "After")["After"]
    unit = appliance.device.unit(UNIT, "Type", "NotifyAccess", "UnitFileState", "LoadState")
    assert unit == {"Type": "notify", "NotifyAccess": "all", "UnitFileState": "generated", "LoadState": "loaded"}
    assert appliance.device.run("systemctl", "is-enabled", "edgellm-device-facts.service").output == "enabled\n"


def test_a_missing_engine_ends_the_start_with_the_server_s_own_code(appliance: ContainerAppliance) -> None:
    appliance.device.run("systemctl", "start", UNIT, check=False)
    state = appliance.wait_until_failed()
    assert (state["ExecMainStatus"], state["NRestarts"]) == ("72", "0")
    assert "no engine" in state["StatusText"]
    assert appliance.journal().count("no engine for") <= 2


def test_ready_comes_after_a_token_and_the_stages_are_seen(appliance: ContainerAppliance, say: Say) -> None:
    appliance.device.run("systemctl", "start", PREWARM, deadline_seconds=READY_SECONDS)
    appliance.wait_until_active("the server that prewarming starts again")
    appliance.device.run("systemctl", "stop", UNIT)
    began = time.monotonic()
    appliance.device.run("systemctl", "--no-block", "start", UNIT)
    seen: list[str] = []
    while (state := appliance.state())["ActiveState"] != "active":
        assert time.monotonic() < began + READY_SECONDS, seen
        assert state["ActiveState"] in ("activating", "inactive"), state
        if state["StatusText"] and state["StatusText"] not in seen:
            seen.append(state["StatusText"])
    assert appliance.chat().status_code == 200
    say(f"start of the container to an answer: {time.monotonic() - began:.1f} s")
    assert any("smollm2-135m-instruct: " in text for text in seen), seen
    assert appliance.state()["StatusText"] == "serving on http://127.0.0.1:8000"
    assert appliance.is_active(READY_TARGET)


def test_its_processes_have_no_rights(appliance: ContainerAppliance, say: Say) -> None:
    pids = list(appliance.processes())
    assert len(pids) == 2
    for pid in pids:
        status = dict(
            line.split(":\t", 1) for line in appliance.device.read(f"/proc/{pid}/status").splitlines() if ":\t" in line
        )
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(USER_NUMBER)}
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")
    shares = [line.split() for pid in pids for line in appliance.device.read(f"/proc/{pid}/smaps_rollup").splitlines()]
    own_kib, files_kib = (
        sum(int(line[1]) for line in shares if line[0] == f"Pss_{kind}:") for kind in ("Anon", "File")
    )
    say(
        f"memory of the server and its worker in the container: {own_kib >> 10} MiB, and {files_kib >> 10} MiB of files"
    )


def test_memory_that_runs_out_is_to_cost_the_worker(appliance: ContainerAppliance) -> None:
    """Devices here have no controller to limit a container's memory with: what the kernel goes by."""
    (worker,) = appliance.worker_pids()
    scores = [int(appliance.device.read(f"/proc/{pid}/oom_score_adj")) for pid in (appliance.server_pid(), worker)]
    assert scores[1] >= scores[0] + 500
    assert appliance.device.unit(UNIT, "OOMPolicy")["OOMPolicy"] == "continue"


def test_it_sees_only_what_the_unit_lists(appliance: ContainerAppliance) -> None:
    mounts = [line.split() for line in appliance.device.read(f"/proc/{appliance.server_pid()}/mountinfo").splitlines()]
    options = {fields[4]: fields[5].split(",") for fields in mounts}
    listed = {"/etc/edgellm": "ro", "/run/credentials/edgellm.service": "ro"}
    listed |= {"/run/edgellm": "rw", "/var/lib/edgellm": "rw", "/run/systemd-of-the-host": "rw"}
    assert "ro" in options["/"]
    assert {place: mode for place, mode in listed.items() if mode in options[place]} == listed
    of_podman = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/etc/host", "/etc/resolv.conf", "/run/.containerenv")
    others = {
        place
        for place in options
        if place not in (*listed, "/", "/run")
        and not place.startswith((*of_podman, "/var/lib/edgellm/models/", "/run/notify", "/run/systemd/notify"))
    }
    assert others == set()
    entered = ("nsenter", "-t", str(appliance.server_pid()), "-m")
    devices = appliance.device.run(*entered, "find", "/dev", "-xdev", "-type", "c", "-o", "-xdev", "-type", "b").output
    assert {Path(line).name for line in devices.splitlines()} <= {
        *("null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"),
    }


def test_only_the_expected_sockets_listen(appliance: ContainerAppliance) -> None:
    assert _listening(appliance, "-ltnup") == ["127.0.0.1:8000"]
    assert _listening(appliance, "-lxp") == ["/run/edgellm/admin.sock"]


def _listening(appliance: ContainerAppliance, which: str) -> list[str]:
    """Of the container's processes: the device, whose network they are in, may have others."""
    sockets = appliance.device.run("ss", "--no-header", which).output.splitlines()
    processes = [f"pid={pid}," for pid in appliance.processes()]
    return [line.split()[4] for line in sockets if any(process in line for process in processes)]


def test_systemd_alone_watches_it(appliance: ContainerAppliance) -> None:
    identity = appliance.device.run("podman", "container", "inspect", "--format={{.Id}}", CONTAINER).output.strip()
    assert identity not in appliance.device.run("systemctl", "list-units", "--all", "--no-legend", "*.timer").output


def test_the_command_on_the_host_reaches_the_server_and_its_store(appliance: ContainerAppliance) -> None:
    assert appliance.command("health").output == "serving on http://127.0.0.1:8000\n"
    assert "smollm2" in appliance.command("engine", "list").output
    assert "smollm2-135m-instruct" in appliance.command("models", "list").output
    assert "nothing changed" in appliance.command("reload").output
    assert appliance.command("config", "check").code == 0
    refused = appliance.command("serve", check=False)
    assert (refused.code, "systemctl start edgellm" in refused.output) == (64, True)
    owners = appliance.device.run("find", "/var/lib/edgellm/engines", "!", "-user", "edgellm").output
    assert owners == ""


def test_only_root_and_the_server_s_user_may_reload(appliance: ContainerAppliance) -> None:
    """The socket knows who calls, through the walls of containers too."""
    run = ("podman", "run", "--rm", "--pull=never", "--log-driver=none", "--no-healthcheck", "--network=none")
    mounts = ("--volume=/run/edgellm:/run/edgellm:ro", "--volume=/etc/edgellm:/etc/edgellm:ro")
    refused = appliance.device.run(*run, *mounts, "--user=65534:65534", CURRENT, "reload", check=False)
    assert refused.code == 77, refused.output
    assert "only root and the daemon's own user may do this" in refused.output
    assert "nothing changed" in appliance.device.run(*run, *mounts, "--user=780:780", CURRENT, "reload").output


def test_a_reload_is_told_to_systemd_and_drops_no_request(appliance: ContainerAppliance) -> None:
    pid = appliance.server_pid()
    appliance.configure("[server]\nrequest_body_bytes_max = 2048\n")
    large = [{"role": "user", "content": "word " * 800}]
    with appliance.stream(max_tokens=200) as events:
        appliance.device.run("systemctl", "reload", UNIT)
        assert appliance.chat(messages=large).status_code == 413
        chunks = list(events)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    appliance.configure("[server]\nrequest_body_bytes_max = 1\n")
    assert appliance.device.run("systemctl", "reload", UNIT, check=False).code != 0
    appliance.configure("")
    appliance.device.run("systemctl", "reload", UNIT)
    state = appliance.state()
    assert (state["ActiveState"], state["SubState"], appliance.server_pid()) == ("active", "running", pid)


def test_more_time_to_start_is_asked_for_while_a_model_loads(appliance: ContainerAppliance) -> None:
    appliance.loads_longer_than(20)


def test_a_long_stream_in_flight_is_finished_before_the_stop(appliance: ContainerAppliance, say: Say) -> None:
    appliance.configure(PATIENT)
    appliance.device.run("systemctl", "restart", UNIT)
    (worker,) = appliance.worker_pids()
    with appliance.stream(max_tokens=400) as events:
        appliance.device.run("kill", "-STOP", str(worker))
        began = time.monotonic()
        stop = subprocess.Popen([*appliance.device.enter(), "systemctl", "stop", UNIT])
        appliance.device.wait_for(lambda: appliance.state()["ActiveState"] == "deactivating", "the stop")
        appliance.device.wait_for(lambda: "finishing 1 running" in appliance.state()["StatusText"], "the drain")
        time.sleep(max(0.0, began + STREAM_SECONDS - time.monotonic()))
        assert appliance.state()["ActiveState"] == "deactivating"
        appliance.device.run("kill", "-CONT", str(worker))
        chunks = list(events)
        assert stop.wait(60) == 0
    say(f"stop with a drain of {STREAM_SECONDS} s and more: {time.monotonic() - began:.1f} s")
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    state = appliance.state()
    assert (state["ActiveState"], state["Result"], state["ExecMainStatus"]) == ("inactive", "success", "0")
    appliance.configure("")
    appliance.start()
    began = time.monotonic()
    appliance.device.run("systemctl", "stop", UNIT)
    say(f"stop of an idle server in its container: {time.monotonic() - began:.1f} s")


def test_the_watchdog_s_pings_come_through_and_a_stuck_server_is_restarted(
    appliance: ContainerAppliance, say: Say
) -> None:
    appliance.drop_in("watchdog", WATCHDOG)
    try:
        appliance.device.run("systemctl", "restart", UNIT)
        restarts, pid = appliance.restarts(), appliance.server_pid()
        time.sleep(8)  # more than the watchdog's interval: without pings it would fire
        assert (appliance.restarts(), appliance.server_pid()) == (restarts, pid)
        began = time.monotonic()
        appliance.device.run("kill", "-STOP", str(pid))
        appliance.device.wait_for(lambda: appliance.restarts() > restarts, "the watchdog", READY_SECONDS)
        appliance.wait_until_it_answers()
        say(f"container: SIGSTOP to the next answer, WatchdogSec=6: {time.monotonic() - began:.1f} s")
        assert appliance.server_pid() != pid
        assert "Watchdog timeout" in appliance.journal()
    finally:
        appliance.drop_in("watchdog", "")


@pytest.mark.parametrize("signal", ["STOP", "KILL"])
def test_a_worker_is_replaced_and_the_server_stays(appliance: ContainerAppliance, signal: str, say: Say) -> None:
    appliance.wait_until_it_answers()
    pid, restarts, (worker,) = appliance.server_pid(), appliance.restarts(), appliance.worker_pids()
    began = time.monotonic()
    appliance.device.run("kill", f"-{signal}", str(worker))
    appliance.device.wait_for(lambda: worker not in appliance.worker_pids(), "the end of the worker")
    appliance.wait_until_it_answers()
    say(f"container: worker, SIG{signal} to the next answer: {time.monotonic() - began:.1f} s")
    assert (appliance.server_pid(), appliance.restarts()) == (pid, restarts)


def test_a_killed_server_is_started_again(appliance: ContainerAppliance, say: Say) -> None:
    pid, restarts, workers = appliance.server_pid(), appliance.restarts(), appliance.worker_pids()
    began = time.monotonic()
    appliance.device.run("kill", "-KILL", str(pid))
    appliance.device.wait_for(lambda: appliance.restarts() == restarts + 1, "the restart")
    appliance.wait_until_it_answers()
    say(f"container: server, SIGKILL to the next answer: {time.monotonic() - began:.1f} s")
    assert appliance.server_pid() != pid
    assert not set(workers) & set(appliance.worker_pids())
    appliance.device.wait_for(lambda: appliance.is_active(READY_TARGET), "the target")


def test_keys_reach_the_server_s_user_and_nobody_else(appliance: ContainerAppliance) -> None:
    said = appliance.command("keys", "add", "phone").output.splitlines()
    (key,) = [line for line in said if line.startswith("edgellm-")]
    appliance.configure(f'[server]\napi_keys_file = "{KEYS_FILE}"\n')
    try:
        appliance.device.run("systemctl", "restart", UNIT)
        assert appliance.chat().status_code == 401
        fields = {**LONG, "max_tokens": 1}
        assert appliance.request("/v1/chat/completions", fields, Authorization=f"Bearer {key}").status_code == 200
        kept = "/etc/edgellm/credentials/api-keys"
        assert appliance.device.run("stat", "-c", "%U:%G %a", kept).output == "root:edgellm 640\n"
        assert key not in appliance.device.journal()
        # From a backup, so that the folder is another one, and the server's is gone.
        folder = "/etc/edgellm/credentials"
        for words in (("cp", "-a", folder, "/root/kept"), ("rm", "-r", folder), ("mv", "/root/kept", folder)):
            appliance.device.run(*words)
        appliance.command("keys", "add", "tablet")
        appliance.command("keys", "revoke", "phone")

        def is_refused() -> bool:
            answer = appliance.request("/v1/chat/completions", fields, Authorization=f"Bearer {key}")
            return answer.status_code == 401

        appliance.device.wait_for(is_refused, "the end of the revoked key")
        # The whole folder cannot be followed, and so nothing is said to count that does not.
        appliance.device.run("cp", "-a", "/etc/edgellm", "/etc/anew")
        appliance.device.run("mv", "/etc/edgellm", "/etc/edgellm-before")
        appliance.device.run("mv", "/etc/anew", "/etc/edgellm")
        for words in (("keys", "revoke", "tablet"), ("reload",)):
            refused = appliance.command(*words, check=False)
            assert refused.code == 78
            assert "the server has another /etc/edgellm, that of its start" in refused.output
    finally:
        appliance.configure("")
        appliance.device.run("systemctl", "restart", UNIT)


def test_settings_of_a_drop_in_count_and_take_nothing_that_the_unit_sets(appliance: ContainerAppliance) -> None:
    port = 8001
    variables = f"EDGELLM_SERVER_PORT={port} EDGELLM_EXTENSIONS_SOCKET=/nowhere"
    appliance.drop_in("settings", f"[Service]\nEnvironment={variables}\n")
    try:
        appliance.device.run("systemctl", "restart", UNIT, deadline_seconds=READY_SECONDS)
        assert appliance.state()["StatusText"] == f"serving on http://127.0.0.1:{port}"
        environment = appliance.device.run("podman", "exec", CONTAINER, "env").output.splitlines()
        assert "EDGELLM_EXTENSIONS_SOCKET=/run/systemd-of-the-host" in environment
    finally:
        appliance.drop_in("settings", "")
        appliance.device.run("systemctl", "restart", UNIT, deadline_seconds=READY_SECONDS)


def test_a_name_that_the_machine_gets_while_it_serves_is_its_own(appliance: ContainerAppliance) -> None:
    before = appliance.device.run("uname", "-n").output.strip()
    appliance.configure('[server]\nhost = "0.0.0.0"\ninsecure_no_keys = true\n')
    try:
        appliance.device.run("systemctl", "restart", UNIT, deadline_seconds=READY_SECONDS)
        assert appliance.request("/v1/models", Host="renamed:8000").status_code == 403
        appliance.device.run("python3", "-c", "import socket; socket.sethostname('renamed')")
        answered = lambda: appliance.request("/v1/models", Host="renamed:8000").status_code == 200  # noqa: E731
        appliance.device.wait_for(answered, "an answer by the new name")
        assert appliance.request("/v1/models", Host="evil.example:8000").status_code == 403
    finally:
        appliance.device.run("python3", "-c", f"import socket; socket.sethostname({before!r})")
        appliance.configure("")
        appliance.device.run("systemctl", "restart", UNIT, deadline_seconds=READY_SECONDS)


def test_an_image_that_is_gone_is_said_with_the_way_out(appliance: ContainerAppliance) -> None:
    kept = "localhost/kept:1"
    appliance.device.run("podman", "tag", CURRENT, kept)
    appliance.device.run("podman", "untag", CURRENT, CURRENT)
    try:
        appliance.device.run("systemctl", "restart", UNIT, check=False)
        assert appliance.wait_until_failed()["ExecMainStatus"] == "125"
        assert f"the image {CURRENT} is not on this machine — podman load --input ARCHIVE" in appliance.journal()
    finally:
        appliance.device.run("podman", "tag", kept, CURRENT)
        appliance.device.run("podman", "untag", kept, kept)
        appliance.device.run("systemctl", "reset-failed", UNIT)
        appliance.device.run("systemctl", "start", UNIT, deadline_seconds=READY_SECONDS)


def test_a_configuration_error_is_one_line_and_no_restart(appliance: ContainerAppliance) -> None:
    appliance.configure("[server]\nprot = 8000\n")
    try:
        appliance.device.run("systemctl", "restart", UNIT, check=False)
        state = appliance.wait_until_failed()
        assert (state["ExecMainStatus"], state["NRestarts"]) == ("78", "0")
        assert "prot" in state["StatusText"]
    finally:
        appliance.configure("")
        appliance.device.run("systemctl", "reset-failed", UNIT)


def test_a_jetson_without_its_gpu_is_not_started_again(appliance: ContainerAppliance) -> None:
    write_files(appliance.device.root / "srv/orin", ORIN_NX)
    command = "/usr/local/lib/edgellm/device-facts --root /srv/orin --output /run/edgellm/device.json"
    appliance.drop_in("board", f"[Service]\nExecStart=\nExecStart={command}\n", FACTS_UNIT)
    appliance.device.run("systemctl", "restart", FACTS_UNIT)
    try:
        appliance.device.run("systemctl", "restart", UNIT, check=False)
        state = appliance.wait_until_failed()
        assert (state["ExecMainStatus"], state["NRestarts"]) == ("68", "0")
        assert "Orin NX 16GB" in state["StatusText"]
    finally:
        appliance.drop_in("board", "", FACTS_UNIT)
        appliance.device.run("systemctl", "restart", FACTS_UNIT)
        appliance.device.run("systemctl", "reset-failed", UNIT, check=False)


def test_a_crash_loop_ends_in_failed(appliance: ContainerAppliance) -> None:
    taken = "edgellm: port 8000 on 127.0.0.1 is in use"
    appliance.device.run("systemctl", "stop", UNIT)
    limit = "Start request repeated too quickly"
    before, limits_before = appliance.journal().count(taken), appliance.journal().count(limit)
    taking = "import socket, time; taken = socket.create_server(('127.0.0.1', 8000)); time.sleep(3600)"
    appliance.device.run("systemd-run", "--quiet", "--unit=holder", "python3", "-c", taking)
    try:
        appliance.device.wait_for(lambda: ":8000" in appliance.device.run("ss", "-ltn").output, "the port's holder")
        appliance.device.run("systemctl", "reset-failed", UNIT, check=False)
        appliance.device.run("systemctl", "start", UNIT, check=False)
        appliance.device.wait_for(lambda: appliance.journal().count(limit) > limits_before, "the start limit", 240)
    finally:
        appliance.device.run("systemctl", "stop", "holder")
    state = appliance.state()
    assert (state["ActiveState"], state["ExecMainStatus"]) == ("failed", "69")
    assert not appliance.is_active(READY_TARGET)
    assert appliance.journal().count(taken) == before + 5
    appliance.device.run("systemctl", "reset-failed", UNIT)


def test_a_power_cut_during_a_build_leaves_nothing_behind(appliance: ContainerAppliance) -> None:
    appliance.device.run("systemctl", "stop", UNIT, PREWARM)
    appliance.device.run("rm", "-r", ENGINES)
    appliance.cut_power_during_a_build()
    appliance.boot()
    appliance.wait_until_it_answers()
    assert appliance.state(PREWARM)["Result"] == "success"
    assert not appliance.unfinished_engines()
    assert len(list(appliance.engines.glob("smollm2*/manifest.json"))) == 1
    assert "as built" in appliance.command("engine", "verify").output


def test_it_serves_after_a_reboot_without_a_network(appliance: ContainerAppliance, say: Say) -> None:
    assert appliance.device.run("ip", "-brief", "link").output.split()[0] == "lo"
    began = time.monotonic()
    appliance.device.reboot()
    appliance.wait_until_it_answers()
    say(f"container: {boot_times(appliance)}; reboot to an answer {time.monotonic() - began:.1f} s")
    assert appliance.restarts() == 0


def test_an_uninstall_takes_the_units_off(appliance: ContainerAppliance) -> None:
    again = appliance.command("install", "--mode", "container").output
    assert again.splitlines()[-1] == "container, without a GPU: nothing changed"
    appliance.uninstall()
    assert appliance.device.unit(UNIT, "LoadState", "ActiveState") == {
        "LoadState": "not-found",
        "ActiveState": "inactive",
    }
    with suppress(AssertionError):
        appliance.device.run("podman", "rm", "--all")
    assert appliance.device.run("test", "-e", "/etc/edgellm/edgellm.toml").code == 0
    assert appliance.device.run("podman", "image", "exists", "localhost/edgellm:current").code == 0


def test_an_uninstall_needs_no_image_and_stops_a_server_that_lost_its_unit(appliance: ContainerAppliance) -> None:
    device = appliance.device
    appliance.install()
    appliance.start()
    number = device.run("podman", "image", "inspect", "--format={{.Id}}", CURRENT).output.strip()
    wrong = appliance.spoil_unit()
    device.run("podman", "untag", CURRENT)
    try:
        assert device.unit(UNIT, "LoadState", "ActiveState") == {"LoadState": "not-found", "ActiveState": "active"}
        refused = appliance.command("install", "--mode", "container", check=False)
        assert (refused.code, f"the image {CURRENT} is not on this machine" in refused.output) == (66, True)
        appliance.uninstall()
    finally:
        device.run("podman", "tag", number, CURRENT)
        device.run("rm", "--force", wrong)
    assert device.run("podman", "ps", "--all", "--format={{.Names}}").output == ""
    assert device.run("systemctl", "list-units", "--all", "--no-legend", "--plain", "edgellm*").output == ""


def test_an_uninstall_needs_no_podman(appliance: ContainerAppliance) -> None:
    appliance.install()
    appliance.start()
    appliance.device.run("systemctl", "stop", UNIT)
    appliance.device.run("mv", "/usr/bin/podman", "/usr/bin/podman.away")
    try:
        appliance.uninstall()
    finally:
        appliance.device.run("mv", "/usr/bin/podman.away", "/usr/bin/podman")
    assert appliance.device.run("test", "-e", WRAPPER, check=False).code == 1
    assert appliance.install().output.splitlines()[-1] == "container, without a GPU: installed"


def test_what_is_refused_in_the_container_is_said_as_the_host_has_it(appliance: ContainerAppliance) -> None:
    refused = appliance.command("install", "--mode", "venv", check=False)
    assert refused.code == 78
    assert refused.output.endswith("— run: edgellm uninstall\n")
    assert "/host" not in refused.output
    shown = appliance.command("install", "--mode", "container", "--dry-run").output
    assert "/host" not in shown
    other = appliance.command("install", "--mode", "container", "--root", "/srv/board", check=False)
    assert (other.code, other.output) == (78, "edgellm: --root /srv/board is no folder\n")


def test_a_link_of_the_host_s_is_followed_in_the_host(appliance: ContainerAppliance) -> None:
    device = appliance.device
    appliance.uninstall()
    device.run("sh", "-c", "mkdir /data && mv /usr/local /data/local && ln -s /data/local /usr/local")
    assert appliance.install().output.splitlines()[-1] == "container, without a GPU: installed"
    assert "edgellm" in device.run("ls", "/data/local/bin").output
    appliance.start()
    assert appliance.chat().status_code == 200
    appliance.uninstall()
    assert "edgellm" not in device.run("ls", "/data/local/bin").output
