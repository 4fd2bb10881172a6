"""The units say what the code means: exit codes, times, users, and no key that the oldest podman does not know."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.unit.systemd.unit_file import SYSTEMD, Sections, read_unit, unit_files, value, values

from edgellm import errors
from edgellm.cli.main import VERBS, parser_of
from edgellm.config import AdmissionSettings
from edgellm.errors import UsageError
from edgellm.host.announcement import SERVICE_FILE
from edgellm.host.brief_containers import NAME_PREFIX, run_on_the_host, run_secretly
from edgellm.host.verbs import HOST_VERBS
from edgellm.service.install.installation import USER_NUMBER
from edgellm.service.notify import EXTENSIONS_VARIABLE
from edgellm.serving.worker.settings import WorkerSettings

UNITS = SYSTEMD / "both/usr/local/lib/systemd/system"
VENV = SYSTEMD / "venv/usr/local/lib/systemd/system"
CONTAINER = SYSTEMD / "container/usr/share/containers/systemd"
FAILURE = UNITS / "edgellm.service.d/10-failure.conf"

# What a restart does not mend. The others may pass: a port that is taken, a hub without an answer, a full disk.
LASTING = (
    UsageError,
    errors.ModelError,
    errors.EngineError,
    errors.ModelSourceError,
    errors.HubAccessError,
    errors.EngineUntrustedError,
    errors.RuntimeUnavailableError,
    errors.EngineMissingError,
    errors.ConfigError,
)
PASSING = (
    errors.PortUnavailableError,
    errors.HubUnavailableError,
    errors.CacheError,
    errors.InsufficientMemoryError,
    errors.BuildFailedError,
    errors.WorkerFailedError,
)

# Keys of [Container] that the manual podman-systemd.unit(5) of podman 4.9.3, the oldest that must do, describes in its
# section "Container units". Those of later ones are not here (Entrypoint, StopTimeout, GroupAdd, ReloadCmd), nor what
# 4.9 takes without describing it.
PODMAN_4_9_KEYS = """
AddCapability AddDevice Annotation AutoUpdate ContainerName ContainersConfModule DNS DNSOption DNSSearch
DropCapability Environment EnvironmentFile EnvironmentHost Exec ExposeHostPort GIDMap GlobalArgs Group
HealthCmd HealthInterval HealthOnFailure HealthRetries HealthStartPeriod HealthStartupCmd HealthStartupInterval
HealthStartupRetries HealthStartupSuccess HealthStartupTimeout HealthTimeout HostName IP IP6 Image Label LogDriver
Mount Network NoNewPrivileges Notify PidsLimit PodmanArgs PublishPort Pull ReadOnly ReadOnlyTmpfs Rootfs RunInit
SeccompProfile Secret SecurityLabelDisable SecurityLabelFileType SecurityLabelLevel SecurityLabelNested
SecurityLabelType ShmSize SubGIDMap SubUIDMap Sysctl Timezone Tmpfs UIDMap Ulimit User UserNS Volume WorkingDir
"""
SANDBOX = (
    *("CapabilityBoundingSet", "DevicePolicy", "LockPersonality", "MemoryDenyWriteExecute", "NoNewPrivileges"),
    *("RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "RemoveIPC", "UMask"),
    *("SystemCallArchitectures", "SystemCallErrorNumber", "SystemCallFilter", "User", "Group"),
)


@pytest.mark.parametrize(
    "path", [FAILURE, UNITS / "edgellm-prewarm.service.d/10-failure.conf"], ids=lambda p: p.parent.name
)
def test_exit_codes_that_no_restart_mends_prevent_one(path: Path) -> None:
    codes = {int(code) for code in value(read_unit(path), "Service", "RestartPreventExitStatus").split()}
    assert codes == {kind.exit_code for kind in LASTING}
    assert not codes & {kind.exit_code for kind in PASSING}


def test_a_stop_leaves_time_for_the_drain_and_the_workers() -> None:
    workers = WorkerSettings()
    needed_seconds = (
        AdmissionSettings().shutdown_drain_seconds + workers.shutdown_grace_seconds + workers.terminate_grace_seconds
    )
    stop_seconds = int(value(read_unit(FAILURE), "Service", "TimeoutStopSec").removesuffix("s"))
    assert stop_seconds > needed_seconds
    quadlet = read_unit(CONTAINER / "edgellm.container")
    (arguments,) = [text for text in values(quadlet, "Container", "PodmanArgs") if "stop" in text]
    assert "--stop-timeout=${STOP_SECONDS}" in arguments.split()
    podman_seconds = int(value(quadlet, "Service", "Environment").removeprefix("STOP_SECONDS="))
    assert needed_seconds < podman_seconds < stop_seconds


def test_a_server_that_hangs_in_its_container_is_not_waited_for() -> None:
    """Podman's own ExecStopPost, which comes after ours, gives it the time of a drain."""
    ended = values(read_unit(CONTAINER / "edgellm.container"), "Service", "ExecStopPost")[0].split()
    assert ended[:2] == ["-/usr/bin/podman", "rm"]
    assert {"--force", "--ignore", "--time=0", "--cidfile=%t/%N.cid"} <= set(ended)


def test_requests_for_more_time_get_out_of_a_container() -> None:
    sections = read_unit(CONTAINER / "edgellm.container")
    passed = [word for text in values(sections, "Container", "PodmanArgs") for word in text.split()]
    (given,) = [word for word in passed if EXTENSIONS_VARIABLE in word]
    socket_inside = given.removeprefix(f"--env={EXTENSIONS_VARIABLE}=")
    # Podman takes the later one: a unit's variables do not come before what the container must have.
    assert passed.index("--env=EDGELLM_*") < passed.index(given)
    assert f"/run/systemd/notify:{socket_inside}" in values(sections, "Container", "Volume")


@pytest.mark.parametrize("unit", ["edgellm", "edgellm-prewarm"])
def test_settings_that_are_variables_of_the_unit_get_into_its_container(unit: str) -> None:
    arguments = " ".join(values(read_unit(CONTAINER / f"{unit}.container"), "Container", "PodmanArgs")).split()
    assert "--env=EDGELLM_*" in arguments


@pytest.mark.parametrize("unit", ["edgellm", "edgellm-prewarm"])
@pytest.mark.parametrize(
    ("status", "has_image", "says"),
    [("125", False, True), ("125", True, False), ("66", False, False), ("", True, False)],
)
def test_an_image_that_is_gone_is_said_with_the_way_out(
    unit: str, status: str, has_image: bool, says: bool, tmp_path: Path
) -> None:
    lines = values(read_unit(CONTAINER / f"{unit}.container"), "Service", "ExecStopPost")
    (line,) = [line for line in lines if "image exists" in line]
    podman = tmp_path / "podman"
    podman.write_text(
        f'#!/bin/sh\n[ "$*" = "image exists localhost/edgellm:current" ] && {"true" if has_image else "false"}\n'
    )
    podman.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "EXIT_STATUS": status}
    command = shlex.split(line.removeprefix("-"))
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr
    remedy = "podman load --input ARCHIVE, then podman tag IMAGE localhost/edgellm:current"
    wanted = f"<3>edgellm: the image localhost/edgellm:current is not on this machine — {remedy}\n"
    assert said == (wanted if says else "")


def test_a_folder_that_is_no_more_is_said_before_podman_says_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the command on a host is root's")
    gone = tmp_path / "gone"
    gone.mkdir()
    wrapper = SYSTEMD / "container/usr/local/bin/edgellm"
    script = f"cd {gone} && rmdir {gone} && exec {wrapper} models list"
    said = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    assert said.returncode == 66
    assert said.stderr.endswith("edgellm: the folder that this is called in is no more — cd into another, then again\n")


def test_a_server_in_a_container_sees_what_its_machine_is_called_now() -> None:
    arguments = " ".join(values(read_unit(CONTAINER / "edgellm.container"), "Container", "PodmanArgs")).split()
    assert "--uts=host" in arguments


def test_a_worker_that_hangs_is_replaced_before_the_watchdog_could_mean_it() -> None:
    watchdog_seconds = int(value(read_unit(FAILURE), "Service", "WatchdogSec").removesuffix("s"))
    assert watchdog_seconds > WorkerSettings().ping_deadline_seconds


@pytest.mark.parametrize("path", unit_files(".container"), ids=lambda path: path.name)
def test_quadlets_have_only_keys_that_podman_4_9_knows(path: Path) -> None:
    sections = read_unit(path)
    assert set(sections) <= {"Unit", "Container", "Quadlet", "Service", "Install"}
    assert {key for key, _ in sections["Container"]} <= set(PODMAN_4_9_KEYS.split())


@pytest.mark.parametrize("path", unit_files(".container"), ids=lambda path: path.name)
def test_containers_may_do_little(path: Path) -> None:
    sections = read_unit(path)
    for key, wanted in {
        "ReadOnly": "true",
        "NoNewPrivileges": "true",
        "DropCapability": "all",
        "Pull": "never",
        "User": str(USER_NUMBER),
        "Group": str(USER_NUMBER),
    }.items():
        assert value(sections, "Container", key) == wanted
    mounted = values(sections, "Container", "Volume")
    written = [text for text in mounted if not text.endswith(":ro") and not text.startswith("/run/systemd/notify:")]
    wanted = ["/var/lib/edgellm"] if path.stem == "edgellm-prewarm" else ["/run/edgellm", "/var/lib/edgellm"]
    assert written == [f"{folder}:{folder}" for folder in wanted]


def test_the_user_has_one_number_everywhere() -> None:
    text = (SYSTEMD / "both/usr/local/lib/sysusers.d/edgellm.conf").read_text()
    assert f"u edgellm {USER_NUMBER} " in text
    wrapper = (SYSTEMD / "container/usr/local/bin/edgellm").read_text()
    assert f"\nuser={USER_NUMBER}:{USER_NUMBER} " in wrapper
    assert '--user="$user"' in wrapper


def test_what_the_command_on_the_host_prints_is_kept_nowhere() -> None:
    """Podman writes to the journal what a container prints, and keys are printed once."""
    wrapper = (SYSTEMD / "container/usr/local/bin/edgellm").read_text()
    runs = [line for line in wrapper.splitlines() if "podman run" in line]
    assert len(runs) == 1
    assert "--log-driver=none" in runs[0]
    assert "--log-driver=none" in run_secretly()
    assert "--log-driver=none" in run_on_the_host()


def test_what_a_power_cut_leaves_of_the_command_on_the_host_is_found_by_its_name() -> None:
    wrapper = (SYSTEMD / "container/usr/local/bin/edgellm").read_text()
    assert f"\nname={NAME_PREFIX}$(" in wrapper
    assert "--name=$name" in next(line for line in wrapper.splitlines() if "podman run" in line)


def test_the_server_never_builds_and_prewarm_is_what_does() -> None:
    for sections, key, section in (
        (read_unit(VENV / "edgellm.service"), "ExecStart", "Service"),
        (read_unit(CONTAINER / "edgellm.container"), "Exec", "Container"),
    ):
        assert value(sections, section, key).endswith("serve --no-build-on-start")
    assert value(read_unit(VENV / "edgellm-prewarm.service"), "Service", "ExecStart").endswith("edgellm prewarm")
    assert value(read_unit(CONTAINER / "edgellm-prewarm.container"), "Container", "Exec") == "prewarm"
    parser_of("serve").parse_args(["--no-build-on-start"])
    parser_of("prewarm").parse_args([])


def _sandbox(sections: Sections) -> list[tuple[str, str]]:
    return [
        (key, text) for key, text in sections["Service"] if key in SANDBOX or key.startswith(("Protect", "Private"))
    ]


def test_server_and_prewarm_are_confined_alike() -> None:
    # The server is to know a name that the machine gets while it runs.
    confinement = (_sandbox(read_unit(VENV / f"{name}.service")) for name in ("edgellm", "edgellm-prewarm"))
    of_server, of_prewarm = confinement
    assert sorted([*of_server, ("ProtectHostname", "yes")]) == sorted(of_prewarm)
    gpu = SYSTEMD / "venv-gpu/usr/local/lib/systemd/system"
    server, prewarm = (read_unit(gpu / f"{name}.service.d/20-gpu.conf") for name in ("edgellm", "edgellm-prewarm"))
    assert server == prewarm


def test_both_ways_wait_for_the_same_units() -> None:
    for name in ("edgellm", "edgellm-prewarm"):
        venv, container = read_unit(VENV / f"{name}.service"), read_unit(CONTAINER / f"{name}.container")
        for key in ("Wants", "After", "Before"):
            assert values(venv, "Unit", key) == values(container, "Unit", key)
        assert venv["Install"] == container["Install"]


def test_the_wrappers_know_verbs_that_there_are() -> None:
    for mode in ("venv", "container"):
        text = (SYSTEMD / mode / "usr/local/bin/edgellm").read_text()
        cases = [line.strip() for line in text.splitlines() if line.rstrip().endswith(")") and line[:1].isalpha()]
        named = {word for line in cases for word in line.rstrip(")").split(" | ") if word.isalpha()}
        assert named, text
        assert named <= set(VERBS)


@pytest.mark.parametrize("mode", ["venv", "container"])
def test_the_wrappers_give_every_verb_of_the_host_to_the_hosts_own_python(mode: str) -> None:
    text = (SYSTEMD / mode / "usr/local/bin/edgellm").read_text()
    cases = re.findall(r"^([a-z][a-z |-]*)\)\n((?:    .*\n)*?)    ;;$", text, re.MULTILINE)
    given = {verb for verbs, does in cases if "host.pyz" in does for verb in verbs.split(" | ")}
    assert given == set(HOST_VERBS)


def test_a_server_that_is_not_ready_is_not_announced() -> None:
    announcing = read_unit(UNITS / "edgellm-announce.service")
    for key in ("BindsTo", "After"):
        assert value(announcing, "Unit", key) == "edgellm-ready.target"
    assert value(read_unit(UNITS / "edgellm-ready.target"), "Unit", "Wants") == "edgellm-announce.service"
    left_by_a_power_cut = (SYSTEMD / "both/usr/local/lib/tmpfiles.d/edgellm.conf").read_text()
    assert f"r! /{SERVICE_FILE}\n" in left_by_a_power_cut
