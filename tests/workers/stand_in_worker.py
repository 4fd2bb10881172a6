"""A worker process that misbehaves as its first argument says; it speaks the real frames until then."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from tests.unit.serving.scripted_lane import capabilities

from edgellm.serving.worker.frames import FrameReader, FrameWriter
from edgellm.serving.worker.messages import (
    PROTOCOL_VERSION,
    Accepted,
    Cancel,
    Delta,
    Final,
    Hello,
    Ping,
    Pong,
    Ready,
    Shutdown,
    Submit,
    ToWorker,
)


def main(mode: str, bundle_dir: str, descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    writer = FrameWriter()
    reader: FrameReader[Any] = FrameReader(ToWorker)  # type: ignore[arg-type]
    resident = 0
    is_warm = False
    taken: list[bytes] = []

    def send(message: Any) -> None:
        connection.sendall(writer.frame(message))

    if mode == "ignores every request to end":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while received := connection.recv(65536):
        for message in reader.feed(received):
            match message:
                case Hello():
                    has_died = Path(bundle_dir, "has-died")
                    if mode == "dies while it loads" or (mode == "dies the first time" and not has_died.exists()):
                        has_died.touch()
                        os.kill(os.getpid(), signal.SIGSEGV)
                    if mode == "says nothing":
                        time.sleep(3600)
                    send(Ready(PROTOCOL_VERSION, capabilities(), "stand-in", bundle_dir))
                case Ping(number):
                    if mode != "stops answering" or resident < 2:
                        send(Pong(number, 0 if mode == "makes no step" and resident > 1 else number, resident))
                case Submit(stream):
                    resident += 1
                    send(Accepted(stream))
                    send(Delta(stream, "a", [1]))
                    if mode.startswith("takes ") and is_warm:  # so many MiB, and does not end
                        taken.append(b"x" * (int(mode.split()[1]) * 2**20))
                    elif resident == 1:  # the warm-up goes well
                        resident = 0 if mode not in ("makes no step", "stops answering") else 1
                        send(Delta(stream, "", [], "stop", 1, 0))
                        send(Final(stream))
                        is_warm = warm = True
                        if mode == "dies after its warm-up":
                            time.sleep(0.2)
                            os._exit(3)
                        if mode in ("sends garbage", "closes its connection", "reports a broken runtime", "keeps on"):
                            resident = int(warm)
                    elif mode == "sends garbage":
                        connection.sendall(b"\xff\xff\xff\x7fgarbage")
                    elif mode == "closes its connection":
                        connection.shutdown(socket.SHUT_RDWR)
                        time.sleep(3600)
                    elif mode == "reports a broken runtime":
                        send(Final(stream, None, True))
                case Cancel():
                    pass  # "keeps on": it never lets go
                case Shutdown():
                    if mode == "ignores every request to end":
                        time.sleep(3600)
                    os._exit(0)
                case _:
                    pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
