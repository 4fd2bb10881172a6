"""MediaSocket: how files reach a worker: as descriptors over a socketpair of their own, a request's before it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

from edgellm.errors import RequestCancelledError, ServerBusyError
from edgellm.media.limits import FILES_MAX
from edgellm.media.media_file import MediaFile
from edgellm.serving.worker.frames import FrameError

_MARK = b"m"  # a descriptor cannot travel without a byte


class MediaSocket:
    """The front end's end, and the ``worker_end`` that a worker is started with."""

    def __init__(self) -> None:
        self._ours, self.worker_end = socket.socketpair()
        self._ours.setblocking(False)

    def send(self, files: Sequence[MediaFile]) -> None:
        """All files of a request at once, so that they are there together or not at all."""
        descriptors = [file.fileno() for file in files]
        if min(descriptors) < 0:  # their request has ended
            raise RequestCancelledError("the request was cancelled")
        try:
            socket.send_fds(self._ours, [_MARK], descriptors)
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

    def take(self, count: int) -> list[MediaFile]:
        """The files of the next request that has some. Raises FrameError where others came, or none."""
        descriptors: list[int] = []
        with suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(self._socket, len(_MARK), FILES_MAX)
        files = [MediaFile(descriptor) for descriptor in descriptors]
        if len(files) != count:
            raise FrameError("a request came without its files")
        return files
