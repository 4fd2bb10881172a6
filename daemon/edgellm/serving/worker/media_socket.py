"""MediaSocket: how files reach a worker: as descriptors over a socketpair of their own, each before its request."""

from __future__ import annotations

import socket
from contextlib import suppress

from edgellm.errors import RequestCancelledError, ServerBusyError
from edgellm.media.media_file import MediaFile
from edgellm.serving.worker.frames import FrameError

_MARK = b"m"  # a descriptor cannot travel without a byte


class MediaSocket:
    """The front end's end, and the ``worker_end`` that a worker is started with."""

    def __init__(self) -> None:
        self._ours, self.worker_end = socket.socketpair()
        self._ours.setblocking(False)

    def send(self, media: MediaFile) -> None:
        if media.fileno() < 0:  # its request has ended
            raise RequestCancelledError("the request was cancelled")
        try:
            socket.send_fds(self._ours, [_MARK], [media.fileno()])
        except BlockingIOError:
            raise ServerBusyError("Too many files wait for this model's worker.") from None
        except OSError:  # it has just died; whoever watches it says so
            return

    def close(self) -> None:
        self._ours.close()
        self.worker_end.close()


class MediaInbox:
    """The worker's end. Used from its event loop."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)

    def take(self) -> MediaFile:
        """The file of the next request that has one. Raises FrameError where none came."""
        descriptors: list[int] = []
        with suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(self._socket, len(_MARK), 1)
        if len(descriptors) != 1:
            raise FrameError("a request came without its file")
        return MediaFile(descriptors[0])
