"""The image run without units: chats, confinement, health, and a stop that lets a stream end."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.container.conftest import Say
from tests.container.running import MODELS, PORT, RunningContainer, running
from tests.lab.forwarding import ForwardedPort
from tests.lab.podman import Podman

from edgellm.service.install.installation import USER_NUMBER

DRAIN_SECONDS = 120
LONG = {"logit_bias": {"2": -100}}  # the end token is banned: the answer is as long as max_tokens


@pytest.fixture(scope="module")
def server(
    podman: Podman, image: str, model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningContainer]:
    state = tmp_path_factory.mktemp("state") / "edgellm"
    with running(podman, image, "edgellm-running", state, model_folder) as found:
        yield found


def client_of(forwarded: ForwardedPort) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{forwarded.url}/v1", api_key="none", timeout=DRAIN_SECONDS)


def chat(server: RunningContainer) -> str:
    with ForwardedPort(server, PORT) as forwarded, client_of(forwarded) as client:
        answer = client.chat.completions.create(
            model="smollm2-135m-instruct", messages=[{"role": "user", "content": "Say hello."}], max_tokens=8
        )
        return answer.choices[0].message.content or ""


def test_a_client_chats_with_it(server: RunningContainer) -> None:
    assert chat(server)


def test_it_has_no_rights(server: RunningContainer) -> None:
    children = Path(f"/proc/{server.leader}/task/{server.leader}/children").read_text().split()
    assert children, "no worker"
    for pid in (server.leader, *map(int, children)):
        text = Path(f"/proc/{pid}/status").read_text()
        status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(USER_NUMBER)}
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")


def test_it_sees_only_the_mounts_that_it_was_given(server: RunningContainer, model_folder: Path) -> None:
    mounts = [line.split() for line in Path(f"/proc/{server.leader}/mountinfo").read_text().splitlines()]
    options = {fields[4]: fields[5].split(",") for fields in mounts}
    model = f"{MODELS}/{model_folder.name}"
    assert "ro" in options["/"]
    assert "ro" in options[model]
    of_podman = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
    others = {place for place in options if place not in ("/", "/run") and not place.startswith(of_podman)}
    assert others - {"/run/.containerenv"} == {"/var/lib/edgellm", "/run/edgellm", model}


def test_it_can_write_to_its_own_folders_and_to_memory_alone(server: RunningContainer) -> None:
    """Asked as the server's user: what mounts say of themselves leaves out whom their files belong to."""
    writable = ("exec", server.name, "find", "/", "-path", "/proc", "-prune", "-o", "-writable", "!", "-type", "l")
    found = server.podman.run(*writable, "-print", check=False).stdout.split()
    assert {"/var/lib/edgellm", "/run/edgellm", "/tmp"} <= set(found)
    allowed = ("/var/lib/edgellm", "/run/edgellm", "/tmp", "/var/tmp", "/dev")
    assert [path for path in found if not path.startswith(allowed)] == []
    assert [path for path in found if path.startswith(f"{MODELS}/")] == []


def test_it_has_only_podman_s_harmless_devices(server: RunningContainer) -> None:
    listed = server.podman.run("exec", server.name, "find", "/dev", "-xdev", "-type", "c,b").stdout.split()
    harmless = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "console", "ptmx")}
    assert set(listed) <= harmless


def test_only_its_port_and_its_admin_socket_listen(server: RunningContainer) -> None:
    entered = ["nsenter", "-t", str(server.leader), "-n", "ss", "--no-header"]
    ports = subprocess.run([*entered, "-ltnu"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [re.split(r" +", line)[4] for line in ports] == [f"127.0.0.1:{PORT}"]
    unix = subprocess.run([*entered, "-lx"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [re.split(r" +", line)[4] for line in unix] == ["/run/edgellm/admin.sock"]


def test_its_own_health_check_says_that_it_is_well(server: RunningContainer) -> None:
    checked = server.podman.run("healthcheck", "run", server.name, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_stop_lets_a_stream_end(podman: Podman, image: str, model_folder: Path, tmp_path: Path, say: Say) -> None:
    with running(podman, image, "edgellm-stopping", tmp_path / "edgellm", model_folder) as server:
        with ForwardedPort(server, PORT) as forwarded, client_of(forwarded) as client:
            stream = client.chat.completions.create(
                model="smollm2-135m-instruct",
                messages=[{"role": "user", "content": "Count."}],
                max_tokens=400,
                stream=True,
                extra_body=LONG,
            )
            first = next(stream)
            stop = threading.Thread(target=podman.run, args=("stop", f"--time={DRAIN_SECONDS}", server.name))
            began = time.monotonic()
            stop.start()
            reasons = [chunk.choices[0].finish_reason for chunk in (first, *stream) if chunk.choices]
            stop.join()
        say(f"podman stop with a stream of 400 tokens: {time.monotonic() - began:.1f} s")
        assert reasons[-1] == "length"
        state = podman.inspect("container", server.name)["State"]
        assert (state["Running"], state["ExitCode"]) == (False, 0)
