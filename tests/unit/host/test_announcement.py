"""What avahi is told of the server: the port and scheme that it really has, and nothing of one that is for itself."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.unit.host.test_admin_question import answering

from edgellm.errors import AnnouncementError, UpgradeError
from edgellm.host.announcement import SERVICE_FILE, announce, withdraw
from edgellm.host.paths import HostPaths


@pytest.fixture
def paths(tmp_path: Path) -> HostPaths:
    host = HostPaths(tmp_path)
    host.at(SERVICE_FILE).parent.mkdir(parents=True)
    return host


def said_by(paths: HostPaths, url: str, address: str | None) -> str:
    answer = {"answer": "host_pass_issued", "url": url, "key": "k" * 40, "version": "1.0"}
    answer |= {} if address is None else {"address": address}
    with answering(paths.admin_socket, json.dumps(answer).encode() + b"\n"):
        return announce(paths)


def test_the_port_and_scheme_are_the_servers(paths: HostPaths) -> None:
    assert said_by(paths, "https://127.0.0.1:8443", "0.0.0.0") == "announced as _openai._tcp, port 8443"
    service = ElementTree.fromstring(paths.at(SERVICE_FILE).read_text()).find("service")  # noqa: S314  # our own
    assert service is not None
    assert [(one.tag, one.text) for one in service] == [
        *(("type", "_openai._tcp"), ("port", "8443")),
        *(("txt-record", "path=/v1"), ("txt-record", "scheme=https")),
    ]
    assert paths.at(SERVICE_FILE).stat().st_mode & 0o777 == 0o644
    withdraw(paths)
    withdraw(paths)
    assert not paths.at(SERVICE_FILE).exists()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost", "", None])
def test_a_server_for_this_machine_alone_is_not_announced(paths: HostPaths, address: str | None) -> None:
    paths.at(SERVICE_FILE).write_text("of before")
    assert said_by(paths, "http://127.0.0.1:8000", address).endswith("not announced")
    assert not paths.at(SERVICE_FILE).exists()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    paths = HostPaths(tmp_path)
    with pytest.raises(UpgradeError, match=r"admin\.sock: No such file"):
        announce(paths)
    with pytest.raises(AnnouncementError, match="is avahi-daemon installed"):
        said_by(paths, "http://127.0.0.1:8000", "0.0.0.0")
