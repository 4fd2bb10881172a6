"""A new device, in both modes: where its first model comes from, and what the command on its host does for root."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.hub.hub_server import KNOWN_USER, HubServer, hub_server
from tests.lab.container_image import CURRENT
from tests.lab.device import Outcome
from tests.lab.fixtures import MakeDevice
from tests.lab.forwarding import ForwardedPort, listen_inside
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.service.appliance import ENGINES, PREWARM, READY_SECONDS, Appliance
from tests.service.conftest import MakeAppliance
from tests.service.container_appliance import ContainerAppliance
from tests.service.model_index import DEFAULT_MODEL, model_index

INDEX_PORT, HUB_PORT = 9101, 9102
HUB_ID = "tiny-org/tiny-model"
CREDENTIAL = "/etc/edgellm/credentials/hub-token"

MakeWithoutModel = Callable[[], Appliance]


@pytest.fixture(scope="module", params=["venv", "container"])
def appliance(request: pytest.FixtureRequest, make_appliance: MakeAppliance, make_device: MakeDevice) -> Appliance:
    """Installed, with nothing to serve."""
    if request.param == "venv":
        made = make_appliance("new", with_model=False).boot()
    else:
        rootfs, archive = request.getfixturevalue("container_rootfs"), request.getfixturevalue("image_archive")
        container = ContainerAppliance.make_with_image(make_device, "new-container", rootfs, archive, None)
        made = container.boot()
        container.load()
    made.device.write("/etc/hosts", "127.0.0.1 localhost\n")  # the hub's second host
    made.install()
    return made


@pytest.fixture
def hub(appliance: Appliance, tmp_path: Path) -> Iterator[HubServer]:
    checkpoint = write_checkpoint(tmp_path / "tiny", VARIANTS["llama-bf16-sharded"])
    with hub_server(listen_inside(appliance.device, HUB_PORT)) as server:
        server.repository(HUB_ID, {path.name: path.read_bytes() for path in checkpoint.iterdir()}, gated=True)
        yield server


def prewarm(appliance: Appliance, **variables: str) -> str:
    """What the prewarming said; it may have failed."""
    lines = "".join(f"Environment={name}={value}\n" for name, value in variables.items())
    appliance.drop_in("sources", f"[Service]\n{lines}", PREWARM)
    appliance.device.run("systemctl", "restart", PREWARM, check=False, deadline_seconds=READY_SECONDS)
    return appliance.journal(PREWARM)


def test_without_a_network_it_says_what_is_missing(appliance: Appliance) -> None:
    said = prewarm(appliance, PIP_RETRIES="0", PIP_TIMEOUT="1")
    assert appliance.state(PREWARM)["ExecMainStatus"] == "75"
    assert f"cannot download {DEFAULT_MODEL.name}" in said
    assert "check the network, or pip's index and proxy settings" in said


def test_the_default_model_comes_from_the_index(appliance: Appliance, tmp_path: Path, model_folder: Path) -> None:
    with model_index(appliance.device, INDEX_PORT, tmp_path, model_folder) as url:
        said = prewarm(appliance, PIP_INDEX_URL=url)
    assert appliance.is_active(PREWARM), said
    appliance.start()
    assert appliance.chat().status_code == 200


def test_a_model_behind_a_token_comes_from_the_hub(appliance: Appliance, hub: HubServer) -> None:
    appliance.configure(f'[[models]]\nsource = "{HUB_ID}"\n')
    said = prewarm(appliance, HF_ENDPOINT=hub.url)
    assert not appliance.is_active(PREWARM)
    assert "token" in said, said
    appliance.device.write(CREDENTIAL, f"{KNOWN_USER}\n", 0o640)
    appliance.device.run("chgrp", "edgellm", CREDENTIAL)
    said = prewarm(appliance, HF_ENDPOINT=hub.url)
    assert appliance.is_active(PREWARM), said
    assert KNOWN_USER in {seen.token for seen in hub.requests}
    assert KNOWN_USER not in said


def test_the_command_of_the_host_has_the_token_too(appliance: Appliance, hub: HubServer) -> None:
    hub.repository("tiny-org/another", hub.repositories[HUB_ID].files_at("main")[1], gated=True)  # type: ignore[index]
    appliance.device.write(CREDENTIAL, f"{KNOWN_USER}\n", 0o640)
    appliance.device.run("chgrp", "edgellm", CREDENTIAL)
    edgellm = ("env", f"HF_ENDPOINT={hub.url}", "/usr/local/bin/edgellm")
    appliance.device.run(*edgellm, "engine", "build", "tiny-org/another", deadline_seconds=READY_SECONDS)
    assert KNOWN_USER in {seen.token for seen in hub.saw("another")}


def served_certificate(appliance: Appliance, port: int) -> str:
    """As text. The device has no openssl: this machine's reads what comes through the port."""
    with ForwardedPort(appliance.device, port) as forwarded:
        pem = ssl.get_server_certificate(("127.0.0.1", int(forwarded.url.rpartition(":")[2])))
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName"],
        input=pem,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return shown.stdout


def host_command(
    appliance: Appliance, *words: str, folder: str = "/root", check: bool = True, **variables: str
) -> Outcome:
    """The command as root calls it in ``folder``."""
    said = [f"{name}={value}" for name, value in variables.items()]
    return appliance.device.run(
        "env", "-C", folder, *said, "/usr/local/bin/edgellm", *words, check=check, deadline_seconds=READY_SECONDS
    )


def test_files_that_root_names_are_the_host_s(appliance: Appliance) -> None:
    """Wherever they lie, by whichever form of their path, also where only root may look."""
    device = appliance.device
    device.run("install", "--directory", "--mode=700", "/root/own", "/srv/with space")
    name = host_command(appliance, "engine", "list").output.split()[0]
    host_command(appliance, "engine", "keygen", "own/key")
    host_command(appliance, "engine", "export", name, "relative.tar.zst", "--sign", "/root/own/key")
    host_command(appliance, "engine", "export", name, "/root/own/absolute.tar.zst")
    host_command(appliance, "engine", "export", name, "./in space.tar.zst", folder="/srv/with space")
    files = (
        "/root/own/key",
        "/root/relative.tar.zst",
        "/root/own/absolute.tar.zst",
        "/srv/with space/in space.tar.zst",
    )
    for file in files:
        assert (device.root / file.lstrip("/")).is_file(), file
    # A key to sign with is root's: the server must not have it.
    assert device.run("stat", "--format=%a %U", "/root/own/key").output == "600 root\n"
    for file in files[1:]:
        assert "was there" in host_command(appliance, "engine", "import", file).output, file
    owners = device.run("find", "/var/lib/edgellm", "!", "-user", "edgellm", "-not", "-path", "*/models*").output
    assert owners == ""
    device.write("/root/own/other.toml", "[server]\nport = 99999\n", 0o600)
    refused = host_command(appliance, "config", "check", "--config", "own/other.toml", check=False)
    assert refused.code == 78
    assert "own/other.toml" in refused.output
    assert "port" in refused.output


def test_links_and_files_in_folders_of_every_system(appliance: Appliance) -> None:
    """Where a link leads to another folder, and where a container has such a folder of its own."""
    device = appliance.device
    device.run("install", "--directory", "--mode=700", "/root/links", "/root/blobs", "/opt/own models", "/srv/a:b,c")
    device.write("/root/blobs/0", "[server]\nport = 99999\n", 0o600)
    device.run("ln", "-s", "../blobs/0", "/root/links/linked.toml")
    device.run("ln", "-s", "/root/links/linked.toml", "/etc/linked.toml")
    for folder in ("/etc", "/opt/own models", "/srv/a:b,c"):
        device.write(f"{folder}/own.toml", "[server]\nport = 99999\n", 0o600)
    for path in ("links/linked.toml", "/etc/linked.toml", "/etc/own.toml", "/opt/own models/own.toml"):
        refused = host_command(appliance, "config", "check", "--config", path, check=False)
        assert (refused.code, "server.port must be at most 65535" in refused.output) == (78, True), refused.output
    refused = host_command(appliance, "config", "check", "--config", "own.toml", folder="/srv/a:b,c", check=False)
    assert "server.port must be at most 65535" in refused.output
    host_command(appliance, "engine", "keygen", "/etc/edgellm/signing")
    assert "PRIVATE KEY" in device.read("/etc/edgellm/signing")
    made = host_command(appliance, "engine", "keygen", "/etc/signing", check=False)
    if isinstance(appliance, ContainerAppliance):
        said = "edgellm: /etc/signing is not there, and a container has a /etc of its own — name a file in another"
        assert (made.code, made.output) == (64, f"{said} folder\n")
    else:
        assert (made.code, "PRIVATE KEY" in device.read("/etc/signing")) == (0, True)


def test_an_installation_is_onto_the_host_whatever_its_root_is_called(appliance: Appliance) -> None:
    device, mode = appliance.device, "container" if isinstance(appliance, ContainerAppliance) else "venv"
    unit = "/usr/local/lib/systemd/system/edgellm-ready.target"
    device.run("rm", unit)
    for root in (("--root", "/"), ("--root=/",)):
        assert "nothing changed" not in host_command(appliance, "install", "--mode", mode, *root).output
        assert device.run("test", "-f", unit).code == 0
        device.run("rm", unit)
    host_command(appliance, "install", "--mode", mode)
    device.run("install", "--directory", "/srv/board")
    installed = host_command(appliance, "install", "--mode", mode, "--root", "../srv/board")
    assert f"made     /srv/board{unit}" in installed.output
    assert device.run("test", "-f", f"/srv/board{unit}").code == 0
    refused = host_command(appliance, "install", "--mode", mode, "--root", "/nowhere", check=False)
    assert (refused.code, "--root /nowhere is no folder" in refused.output) == (78, True)


def test_without_words_it_helps_and_starts_nothing(appliance: Appliance) -> None:
    appliance.device.run("systemctl", "stop", "edgellm")
    helped = host_command(appliance, check=False)
    assert helped.code == 64
    assert "usage: edgellm" in helped.output


def test_a_question_to_a_server_that_does_not_run_says_so(appliance: Appliance) -> None:
    appliance.device.run("systemctl", "stop", "edgellm")
    for verb in ("health", "reload", "pair-code"):
        refused = host_command(appliance, verb, check=False)
        assert refused.code == 69, refused.output
        assert len(refused.output.splitlines()) == 1
        assert "systemctl start edgellm" in refused.output
    refused = host_command(appliance, "chat", "Hello.", check=False)
    assert (refused.code, "start one with: systemctl start edgellm" in refused.output) == (69, True)


def test_another_user_is_told_to_be_root_where_only_root_has_the_containers(appliance: Appliance) -> None:
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    answer = appliance.device.run(*as_nobody, "/usr/local/bin/edgellm", "version", check=False)
    if isinstance(appliance, ContainerAppliance):
        said = "edgellm: containers of this machine are root's — run: sudo edgellm version\n"
        assert (answer.code, answer.output) == (77, said)
    else:
        assert (answer.code, "edgellm" in answer.output) == (0, True)


def test_a_chat_on_the_host_is_with_the_server_of_the_configuration(appliance: Appliance) -> None:
    """Another port, HTTPS by an authority of its own, and a key."""
    device, folder = appliance.device, "/etc/edgellm/credentials"
    host_command(appliance, "tls", "init", "--folder", "/etc/edgellm/tls")
    made = {"server.crt": "tls-certificate", "server.key": "tls-key", "ca.crt": "tls-authority"}
    for file, credential in made.items():
        device.run("install", "--mode=640", "--group=edgellm", f"/etc/edgellm/tls/{file}", f"{folder}/{credential}")
    added = host_command(appliance, "keys", "add", "host").output.splitlines()
    (key,) = [line for line in added if line.startswith("edgellm-")]
    place = "/run/credentials/edgellm.service"
    appliance.configure(
        f'[server]\nport = 8443\napi_keys_file = "{place}/api-keys"\ntls_certificate_file = "{place}/tls-certificate"\n'
        f'tls_key_file = "{place}/tls-key"\ntls_authority_file = "{place}/tls-authority"\n'
        f'[[models]]\nsource = "{DEFAULT_MODEL.name}"\n'
    )
    device.run("systemctl", "restart", "edgellm", deadline_seconds=READY_SECONDS)
    said = host_command(appliance, "chat", "Name the capital of France.", EDGELLM_API_KEY=key)
    assert "Paris" in said.output
    assert key not in appliance.journal()
    refused = host_command(appliance, "chat", "Hello.", check=False)
    assert "401" in refused.output
    with_url = host_command(
        appliance, "chat", "Name the capital of France.", EDGELLM_API_KEY=key, EDGELLM_URL="https://127.0.0.1:8443"
    )
    assert "Paris" in with_url.output
    device.run("install", "--directory", "--mode=700", "/root/own")
    device.write("/root/own/key", f"{key}\n", 0o600)
    with_file = host_command(appliance, "chat", "Name the capital of France.", "--api-key-file", "own/key")
    assert "Paris" in with_file.output
    renewed = host_command(appliance, "tls", "init", "--name", "board.example")
    assert 'tls_key_file = "/run/credentials/edgellm.service/tls-key"' in renewed.output
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName"],
        input=device.read(f"{folder}/tls-certificate"),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert "board.example" in shown.stdout
    pid = appliance.pid()
    device.wait_for(lambda: "board.example" in served_certificate(appliance, 8443), "the renewed certificate")
    assert "Paris" in host_command(appliance, "chat", "Name the capital of France.", EDGELLM_API_KEY=key).output
    host_command(appliance, "keys", "revoke", "host")
    device.wait_for(
        lambda: "401" in host_command(appliance, "chat", "Hello.", check=False, EDGELLM_API_KEY=key).output,
        "the end of a revoked key",
    )
    assert appliance.pid() == pid


def test_the_cause_of_a_failed_start_is_an_error_in_the_journal(appliance: Appliance) -> None:
    appliance.configure('[[models]]\nsource = "/nowhere/model.gguf"\n')
    appliance.device.run("systemctl", "restart", "edgellm", check=False, deadline_seconds=READY_SECONDS)
    appliance.wait_until_failed()
    errors = appliance.device.journal("edgellm.service", "--priority=err")
    assert "/nowhere/model.gguf" in errors


def test_engines_that_the_service_may_not_read_are_named_with_the_way_out(appliance: Appliance) -> None:
    appliance.configure(f'[[models]]\nsource = "{DEFAULT_MODEL.name}"\n')
    appliance.device.run("chown", "root:root", ENGINES)
    appliance.device.run("chmod", "700", ENGINES)
    said = prewarm(appliance)
    assert appliance.state(PREWARM)["ExecMainStatus"] == "73"
    (line,) = {line for line in said.splitlines() if "Permission denied" in line}
    assert "it belongs to user 0 — chown -R it to the user that runs edgellm" in line
    appliance.device.run("systemctl", "restart", "edgellm", check=False, deadline_seconds=READY_SECONDS)
    appliance.device.wait_for(
        lambda: appliance.state()["ExecMainStatus"] == "73", "the refusal of the server", READY_SECONDS
    )
    assert "internal error" not in appliance.journal()


def test_an_image_that_is_gone_is_said_in_one_line(appliance: Appliance) -> None:
    if not isinstance(appliance, ContainerAppliance):
        return
    appliance.device.run("systemctl", "stop", "edgellm", "edgellm-prewarm")
    appliance.device.run("podman", "image", "untag", CURRENT)
    for verb in ("models", "install", "keys"):
        refused = host_command(appliance, verb, "list", check=False)
        assert refused.code == 66
        assert refused.output == (
            f"edgellm: the image {CURRENT} is not on this machine — podman load --input ARCHIVE, then podman tag IMAGE "
            f"{CURRENT}\n"
        )
