"""Releases for upgrades: good ones, and ones that are broken in a way of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.lab.wheels import Change, release_wheel
from tests.service.appliance import DEPENDENCIES

FOLDER = "/srv/releases"
BROKEN: Mapping[str, tuple[str, Change]] = {
    # The file that is changed, and how.
    "ends-at-its-start": (
        "edgellm/cli/serve.py",
        lambda text: text.replace(
            ") -> int:\n", ') -> int:\n    raise __import__("edgellm.errors").errors.ConfigError("built to end")\n', 1
        ),
    ),
    "crashes-at-its-start": (
        "edgellm/cli/serve.py",
        lambda text: text.replace(") -> int:\n", ") -> int:\n    __import__('os').abort()\n", 1),
    ),
    "is-never-ready": (
        "edgellm/cli/serve.py",
        lambda text: text.replace(") -> int:\n", ") -> int:\n    __import__('time').sleep(3600)\n", 1),
    ),
    "answers-nothing": (
        "edgellm/api/chat_completions.py",
        lambda text: text.replace("-> GenerationResponse:\n", "-> GenerationResponse:\n    raise RuntimeError\n", 1),
    ),
    "does-not-run": ("edgellm/cli/main.py", lambda text: f"import absent\n{text}"),
    "builds-nothing": (
        "edgellm/engines/native_builder.py",
        lambda text: text.replace(
            "        log = staging / LOG_FILE\n", '        raise BuildFailedError("built to fail")\n', 1
        ),
    ),
    "prepares-nothing": (
        "edgellm/cli/prewarm.py",
        lambda text: text.replace(") -> int:\n", ') -> int:\n    raise ConfigError("built to fail")\n', 1),
    ),
}

# A setting that other releases do not know, and its variable.
NOVEL_SETTING, NOVEL_VARIABLE = "server.novelty = 1", "EDGELLM_SERVER_NOVELTY"
NOVEL: Mapping[str, Change] = {
    "edgellm/config/server_settings.py": lambda text: text.replace(
        "    host: Text | None = Field(\n",
        '    novelty: Whole = Field(default=0, description="New.")\n    host: Text | None = Field(\n',
        1,
    )
}


def other_engines(layout: int) -> Mapping[str, Change]:
    """A release that takes no engine of another layout."""
    return {
        "edgellm/engines/fingerprint.py": lambda text: text.replace(
            "LOWERING_VERSION = 1\n", f"LOWERING_VERSION = {layout}\n", 1
        )
    }


class ReleaseWheels:
    """Made when first asked for; ``folder`` is what devices see as ``FOLDER``."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self._wheel = wheel
        self.folder = folder
        folder.mkdir()

    def good(self, version: str) -> str:
        """Its path on the device."""
        return self._on_device(self._make(version, version))

    def with_novel_setting(self, version: str) -> str:
        return self._on_device(self._make(f"novel-{version}", version, NOVEL))

    def broken(self, how: str, version: str = "0.9.9") -> str:
        name, change = BROKEN[how]
        return self._on_device(self._make(how, version, {name: change}))

    def with_dependencies(self, version: str, wheels: Path) -> str:
        """A folder with the wheels of everything it needs."""
        folder = self.folder / f"{version}-whole"
        if not folder.exists():
            release_wheel(self._wheel, folder, version)
            for wheel in wheels.iterdir():
                (folder / wheel.name).write_bytes(wheel.read_bytes())
        return f"{FOLDER}/{folder.name}"

    def _make(self, name: str, version: str, changes: Mapping[str, Change] | None = None) -> Path:
        folder = self.folder / name
        made = list(folder.glob("*.whl"))
        # What it depends on is on the device already: a staging takes seconds then.
        return (
            made[0] if made else release_wheel(self._wheel, folder, version, changes=changes, dependencies=DEPENDENCIES)
        )

    def _on_device(self, wheel: Path) -> str:
        return f"{FOLDER}/{wheel.relative_to(self.folder).as_posix()}"
