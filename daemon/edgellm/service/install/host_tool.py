"""The host tool as one file that the host's own Python runs: what upgrades edgellm must not depend on it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import edgellm

# Of every entry: the same source gives the same bytes.
ENTRY_TIME = (1980, 1, 1, 0, 0, 0)
ENTRY_MODE = 0o644
_MAIN = '"""The host tool of edgellm."""\n\nimport sys\n\nfrom edgellm.host.__main__ import main\n\nsys.exit(main())\n'


def host_tool() -> bytes:
    """A zip file for `python3 host.pyz VERB`."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(_entries()):
            entry = zipfile.ZipInfo(name, ENTRY_TIME)
            entry.external_attr = ENTRY_MODE << 16
            archive.writestr(entry, data)
    return content.getvalue()


def _entries() -> Iterator[tuple[str, bytes]]:
    package = Path(edgellm.__file__).parent
    yield "__main__.py", _MAIN.encode()
    below = (package / f"{name}.py" for name in ("__init__", "durable_file", "errors"))
    for path in (*below, *(package / "host").rglob("*.py")):
        yield f"edgellm/{path.relative_to(package).as_posix()}", path.read_bytes()
