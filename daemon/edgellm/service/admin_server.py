"""AdminServer: verbs for whoever runs the machine, over a Unix socket that only root and the daemon's user may use."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from edgellm.config.admin_location import default_admin_sockets
from edgellm.errors import AdminAccessError, ConfigError, EdgeLLMError
from edgellm.service.admin_messages import LINE_BYTES_MAX, Answer, Refused, Request

REQUEST_DEADLINE_SECONDS = 10.0
BACKLOG = 8
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

_log = logging.getLogger(__name__)

Handler = Callable[[Any], Awaitable[Answer]]  # of the type of request that it is for


def open_admin_socket(path: Path | None, environ: Mapping[str, str]) -> socket.socket | None:
    """Listening. None where no default place can be used, which is logged; a ``path`` of the configuration must be.

    Raises ConfigError.
    """
    if path is not None:
        return _listen(path)
    problems = []
    for place in default_admin_sockets(environ):
        try:
            return _listen(place)
        except ConfigError as error:
            problems.append(str(error))
    _log.info("edgellm reload cannot reach this daemon, SIGHUP can: %s", "; ".join(problems))
    return None


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _remove_dead(path)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except ConfigError:
        listener.close()
        raise
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise ConfigError(f"admin_socket {path}: {reason} — set admin_socket to a path the daemon may write") from None
    return listener


def _remove_dead(path: Path) -> None:
    """A socket that nobody listens on was left by a daemon that is gone."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"admin_socket {path} is there and is no socket — choose another path")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(REQUEST_DEADLINE_SECONDS)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                path.unlink(missing_ok=True)
                return
    raise ConfigError(f"admin_socket {path}: another daemon answers there — set admin_socket to a path of its own")


class AdminServer:
    """Serves on ``listener`` until it is closed; ``handlers`` are by the type of the request."""

    def __init__(self, listener: socket.socket, handlers: Mapping[type[Request], Handler]) -> None:
        self._listener = listener
        self._path = Path(listener.getsockname())
        self._inode = self._path.stat().st_ino
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, sock=self._listener, limit=LINE_BYTES_MAX)

    async def close(self) -> None:
        """What is being answered is given up."""
        if self._server is not None:
            self._server.close()
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        try:
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except OSError:
            return

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # streams run each connection in a task
        self._answering.add(task)
        try:
            answer = await self._answer_to(reader, writer)
            writer.write(msgspec.json.encode(answer) + b"\n")
            async with asyncio.timeout(REQUEST_DEADLINE_SECONDS):
                await writer.drain()
        except (OSError, TimeoutError):
            _log.debug("a client of the admin socket left")
        finally:
            self._answering.discard(task)
            writer.close()

    async def _answer_to(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
        try:
            async with asyncio.timeout(REQUEST_DEADLINE_SECONDS):
                line = await reader.readline()  # of everybody: a connection closed over unread bytes loses the answer
        except (TimeoutError, ValueError) as error:
            return Refused("usage", str(error) or f"no request came within {REQUEST_DEADLINE_SECONDS:g} s")
        uid = _uid_of(writer)
        if uid not in (0, os.geteuid()):
            _log.warning("user %d was refused at the admin socket", uid)
            return Refused(AdminAccessError.code, "only root and the daemon's own user may do this — use sudo")
        try:
            request = msgspec.json.decode(line, type=Request)
        except msgspec.MsgspecError as error:
            return Refused("usage", f"this is no request that the daemon knows ({error})")
        try:
            return await self._handlers[type(request)](request)
        except EdgeLLMError as error:
            return Refused(error.code, str(error))


def _uid_of(writer: asyncio.StreamWriter) -> int:
    connection = writer.get_extra_info("socket")
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)
