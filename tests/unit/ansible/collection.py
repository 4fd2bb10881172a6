"""Where the collection is, and its plugins as plain modules."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

COLLECTION = Path(__file__).resolve().parents[3] / "ansible"
ROLES = COLLECTION / "roles"


def plugin(name: str) -> ModuleType:
    """A plugin of the collection, such as ``filter/fitness``."""
    path = COLLECTION / "plugins" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"edgellm_appliance_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program_output(program: Path, *arguments: str) -> Any:
    """What a program that runs on boards prints as JSON; through standard input, as the roles run it."""
    completed = subprocess.run(
        [sys.executable, "-I", "-", *arguments],
        input=program.read_text(encoding="utf-8"),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(completed.stdout)


def write_files(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
