"""Callback of Ansible: the control host dies, at once and without a word, when a board's record has a step last."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

RECORD_VARIABLE = "EDGELLM_END_RECORD"
STEP_VARIABLE = "EDGELLM_END_STEP"


class CallbackModule(CallbackBase):  # type: ignore[misc]  # the base is not typed
    """How Ansible finds it."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "end_after"

    def v2_runner_on_ok(self, result: Any) -> None:
        """A step is written down by a task: nothing has begun since."""
        record = Path(os.environ[RECORD_VARIABLE])
        steps = json.loads(record.read_text())["steps"] if record.exists() else []
        if steps and f"{steps[-1]['step']} {steps[-1]['state']}" == os.environ[STEP_VARIABLE]:
            os.kill(os.getpid(), signal.SIGKILL)
