"""The socket is taken before anything is loaded; what is in the way is one line with a remedy."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from edgellm.errors import ConfigError, PortUnavailableError
from edgellm.service.address import Listener, bind_host, holder_of, listen


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


def test_without_keys_only_this_machine_is_served() -> None:
    assert bind_host(None, has_keys=False, insecure_no_keys=False) == "127.0.0.1"
    assert bind_host(None, has_keys=False, insecure_no_keys=True) == "127.0.0.1"


def test_with_keys_every_address_is_served() -> None:
    assert bind_host(None, has_keys=True, insecure_no_keys=False) == "0.0.0.0"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "example.org"])
def test_a_wider_bind_without_keys_is_refused_unless_said(host: str) -> None:
    with pytest.raises(ConfigError, match=r"api_keys_file, bind 127\.0\.0\.1, or say --insecure-no-keys"):
        bind_host(host, has_keys=False, insecure_no_keys=False)
    assert bind_host(host, has_keys=False, insecure_no_keys=True) == host
    assert bind_host(host, has_keys=True, insecure_no_keys=False) == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert bind_host(host, has_keys=False, insecure_no_keys=False) == host


def test_a_free_port_is_taken_and_named() -> None:
    listener = listen("127.0.0.1", 0)
    with listener.socket:
        assert listener.port > 0
        assert listener.url == f"http://127.0.0.1:{listener.port}"
        with socket.create_connection(("127.0.0.1", listener.port), timeout=10):
            pass


def test_a_port_in_use_names_its_holder_and_a_remedy(taken_port: int) -> None:
    with pytest.raises(PortUnavailableError) as caught:
        listen("127.0.0.1", taken_port)
    message = str(caught.value)
    assert message.startswith(f"port {taken_port} on 127.0.0.1 is in use by ")
    assert f"(pid {os.getpid()})" in message
    assert message.endswith("stop that program or choose another port with server.port or --port")
    assert caught.value.exit_code == 69


def test_a_free_port_has_no_holder(taken_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    assert holder_of(free) == ""


def test_an_address_that_this_machine_does_not_have_now_is_refused_and_may_come() -> None:
    with pytest.raises(PortUnavailableError, match=r"server.host 192\.0\.2\.1 is no address of this machine"):
        listen("192.0.2.1", 0)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 300, "a..b"])
def test_a_name_that_means_nothing_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="is no address of this machine"):
        listen(host, 0)


def test_the_url_reaches_a_server_on_all_addresses_by_loopback() -> None:
    with socket.socket() as placeholder:
        assert Listener(placeholder, "0.0.0.0", 80).url == "http://127.0.0.1:80"
        assert Listener(placeholder, "::", 80).url == "http://[::1]:80"
