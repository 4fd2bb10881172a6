"""Reads how far rollouts brought each board, as the control host wrote it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: board_records
author: The edgellm authors
short_description: How far rollouts brought each board
description:
  - Reads what C(edgellm.appliance.board_record) wrote.
options:
  _terms:
    description: The folder of records.
    type: path
    required: true
"""
RETURN = """
_raw:
  description:
    - A dictionary of records by board.
  type: list
  elements: dict
"""


def records_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Empty where the folder is not there yet. Raises AnsibleError for a record that is damaged."""
    return {file.stem: _record(file) for file in sorted(folder.glob("*.json"))}


def _record(file: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(file.read_bytes())
        _ = value["wanted"], value["ticket"], value["was"], value["outcome"], value["steps"]
    except (OSError, ValueError, KeyError, TypeError):
        raise AnsibleError(f"{file} is damaged; move it away, then the board counts as in no rollout") from None
    return value


class LookupModule(LookupBase):
    """How Ansible finds it."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[dict[str, dict[str, Any]]]:
        """One dictionary a folder."""
        self.set_options(var_options=variables, direct=kwargs)
        return [records_in(Path(term).expanduser()) for term in terms]
