"""HTTPS with a certificate of one's own: real clients trust it, and nothing else gets through."""

from __future__ import annotations

import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import openai
import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import MODEL, Daemon
from tests.http.test_command import edgellm

from edgellm.service.private_ca import PrivateCa

DEADLINE_SECONDS = 60.0


@pytest.fixture
def authority(tmp_path: Path) -> PrivateCa:
    made = edgellm("tls", "init", "--folder", str(tmp_path / "tls"))
    assert made.returncode == 0, made.stderr
    return PrivateCa(tmp_path / "tls")


def options(authority: PrivateCa) -> tuple[str, ...]:
    return (
        "--tls-certificate-file",
        str(authority.server_certificate),
        "--tls-key-file",
        str(authority.server_key),
    )


@pytest.fixture
def secure(start_daemon: StartDaemon, authority: PrivateCa) -> Daemon:
    daemon: Daemon = start_daemon(
        *options(authority),
        authority=authority.ca_certificate,
    )
    return daemon


def serial_of(daemon: Daemon, context: ssl.SSLContext) -> str:
    with (
        socket.create_connection(daemon.address, timeout=DEADLINE_SECONDS) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as secured,
    ):
        certificate = secured.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])


def test_the_openai_client_talks_to_it_and_streams(secure: Daemon) -> None:
    assert secure.url.startswith("https://127.0.0.1:")
    assert isinstance(secure.verify, ssl.SSLContext)
    http_client = httpx.Client(verify=secure.verify)
    with openai.OpenAI(base_url=f"{secure.url}/v1", api_key="none", http_client=http_client) as client:
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "temperature": 0}
        whole = client.chat.completions.create(**asked, max_tokens=12)  # type: ignore[call-overload]
        stream = client.chat.completions.create(**asked, max_tokens=12, stream=True)  # type: ignore[call-overload]
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert streamed == whole.choices[0].message.content
        assert streamed


def test_only_who_trusts_the_authority_talks_to_it(secure: Daemon, authority: PrivateCa) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{secure.url}/health/live")
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{secure.url.replace('https', 'http')}/health/live")
    trusting = edgellm(
        "chat", "Hi", "--url", secure.url, "--max-tokens", "4", SSL_CERT_FILE=str(authority.ca_certificate)
    )
    assert trusting.returncode == 0, trusting.stderr
    distrustful = edgellm("chat", "Hi", "--url", secure.url)
    assert distrustful.returncode == 69
    assert f"the certificate of {secure.url} is not trusted" in distrustful.stderr
    assert "SSL_CERT_FILE=…/ca.crt" in distrustful.stderr
    assert "Traceback" not in distrustful.stderr


def test_the_printed_lines_work_over_https_as_they_stand(secure: Daemon) -> None:
    secure.wait_for(lambda: "  Python " in secure.log)
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in secure.lines if line.startswith("  ")}
    completed = subprocess.run(
        ["/bin/sh", "-c", f"{lines['trust'].strip()}; {lines['Python']}"], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip()


def test_a_renewed_certificate_holds_at_once_and_running_streams_go_on(secure: Daemon, authority: PrivateCa) -> None:
    context = secure.verify
    assert isinstance(context, ssl.SSLContext)
    before = serial_of(secure, context)
    with openai.OpenAI(base_url=f"{secure.url}/v1", api_key="none", http_client=httpx.Client(verify=context)) as client:
        messages = [{"role": "user", "content": "Count to one hundred."}]
        stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True, max_tokens=200)  # type: ignore[arg-type]
        next(iter(stream))
        renewed = edgellm("tls", "init", "--folder", str(authority.folder))
        assert "kept the authority" in renewed.stdout
        secure.wait_for(lambda: serial_of(secure, context) != before)
        assert list(stream)[-1].choices[0].finish_reason in ("stop", "length")
    authority.server_key.write_text("nonsense")
    secure.wait_for(lambda: "certificate and key were not read anew" in secure.log)
    assert secure.get("/health/live").status_code == 200


def test_a_handshake_that_does_not_come_ends_at_the_header_deadline(secure: Daemon) -> None:
    with socket.create_connection(secure.address, timeout=DEADLINE_SECONDS) as silent:
        assert silent.recv(1) == b""
    assert secure.get("/health/live").status_code == 200


def test_files_that_cannot_serve_end_the_start_with_their_names(
    start_daemon: StartDaemon, authority: PrivateCa, tmp_path: Path
) -> None:
    other = PrivateCa(tmp_path / "other")
    other.init(["localhost"])
    wrong_key = start_daemon(
        "--tls-certificate-file",
        str(authority.server_certificate),
        "--tls-key-file",
        str(other.server_key),
        ready=False,
    )
    assert wrong_key.exit_code() == 78
    assert f"{other.server_key} is not the key of {authority.server_certificate}" in wrong_key.log
    alone = start_daemon("--tls-certificate-file", str(authority.server_certificate), ready=False)
    assert alone.exit_code() == 78
    assert "--tls-certificate-file: server.tls_certificate_file needs tls_key_file (--tls-key-file) too" in alone.log
    authority.server_key.chmod(0o644)
    open_key = start_daemon(*options(authority), ready=False)
    assert open_key.exit_code() == 78
    assert "is open to every user — run: chmod 600" in open_key.log
