"""Clients may call this machine by its own names and addresses, and only by those it can be reached by."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

from edgellm.service.host_names import interface_addresses, own_names

FIB_TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.0
           /24 link UNICAST
        |-- 10.0.0.7
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
"""
IF_INET6 = "fe800000000000000000000000000001 02 40 20 80     eth0\n"


def test_a_loopback_server_is_known_by_loopback_names_alone() -> None:
    assert own_names("127.0.0.1") == ("localhost", "127.0.0.1", "::1")


def test_a_server_on_all_addresses_is_known_by_name_mdns_name_and_addresses() -> None:
    names = own_names("0.0.0.0")
    assert socket.gethostname().lower() in names
    assert ".local" in names
    assert set(interface_addresses()) <= set(names)


def test_a_server_on_one_address_is_known_by_it() -> None:
    assert "192.0.2.7" in own_names("192.0.2.7")


def test_what_the_operator_adds_is_kept() -> None:
    assert "llm.example.org" in own_names("127.0.0.1", ("llm.example.org",))


def test_addresses_come_from_the_kernel_tables(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/fib_trie").write_text(FIB_TRIE)
    (tmp_path / "net/if_inet6").write_text(IF_INET6)
    assert interface_addresses(tmp_path) == ("127.0.0.1", "10.0.0.7", "fe80::1")


def test_a_kernel_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    assert interface_addresses(tmp_path) == ()


def test_the_real_machine_has_valid_addresses() -> None:
    for address in interface_addresses():
        ipaddress.ip_address(address)
