"""Writes down, on the control host, how far a board is: in one piece, so that what a dying host leaves can be read."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


def write_whole(path: Path, record: dict[str, Any]) -> None:
    """Whole and on the disk, or not at all. For its owner alone."""
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(record, stream, indent=4, sort_keys=True)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


class ActionModule(ActionBase):
    """How Ansible finds it. It runs on the control host and asks the board nothing."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Says that it changed: a record has a time."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(
            argument_spec={"file": {"type": "path", "required": True}, "record": {"type": "dict", "required": True}}
        )
        if not self._task.check_mode:
            try:
                write_whole(Path(given["file"]), given["record"])
            except OSError as error:
                raise AnsibleActionFail(f"{given['file']}: {error.strerror}") from None
        return {**result, "changed": True}
