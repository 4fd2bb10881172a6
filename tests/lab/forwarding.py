"""A port of a device on this machine's loopback, so that ordinary clients reach what listens in the device."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

_CLONE_NEWNET = 0x40000000
CHUNK_BYTES = 65_536


class HasNetwork(Protocol):
    """A device, or a container: its first process is in its network."""

    @property
    def leader(self) -> int: ...


def connect_inside(device: HasNetwork, port: int) -> socket.socket:
    """A connection made in the device's own network. Raises OSError where nobody listens."""
    return _made_inside(device, lambda: socket.create_connection(("127.0.0.1", port)))


def listen_inside(device: HasNetwork, port: int) -> socket.socket:
    """A socket that listens on the device's own loopback, for a server of this process."""
    return _made_inside(device, lambda: socket.create_server(("127.0.0.1", port)))


def _made_inside(device: HasNetwork, make: Callable[[], socket.socket]) -> socket.socket:
    def enter_and_make() -> socket.socket:
        # A thread may live in another network than its process; it is used once.
        namespace = os.open(f"/proc/{device.leader}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(namespace)
        return make()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(enter_and_make).result()


class ForwardedPort:
    """``url`` leads to ``port`` of the device, also after it rebooted. Use as a context."""

    def __init__(self, device: HasNetwork, port: int) -> None:
        self._device, self._port = device, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> ForwardedPort:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client:
            try:
                server = connect_inside(self._device, self._port)
            except OSError:
                return
            with server:
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one of them is gone: so is the connection
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
