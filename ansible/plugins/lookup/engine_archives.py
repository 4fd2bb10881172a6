"""Tells which engines lie on the control host as archives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: engine_archives
author: The edgellm authors
short_description: The engines that lie on the control host
description:
  - Reads a folder of archives, each with a description beside it that was written when it was fetched.
options:
  _terms:
    description: The folder.
    type: path
    required: true
"""
RETURN = """
_raw:
  description:
    - A list of dictionaries with C(engine), the archive's name without its ending; C(key), none where it is not known;
      and C(wanted), what models asked for it.
  type: list
  elements: list
"""

ARCHIVE, DESCRIPTION = ".archive", ".json"


def archives_in(folder: Path) -> list[dict[str, Any]]:
    """Empty where the folder is not there yet. Raises AnsibleError for a description that is damaged."""
    return [_described(archive) for archive in sorted(folder.glob(f"*{ARCHIVE}"))]


def _described(archive: Path) -> dict[str, Any]:
    engine = archive.name.removesuffix(ARCHIVE)
    description = archive.with_name(f"{engine}{DESCRIPTION}")
    try:
        value = json.loads(description.read_bytes())
        return {"engine": engine, "key": value["key"], "wanted": list(value["wanted"])}
    except FileNotFoundError:
        return {"engine": engine, "key": None, "wanted": []}
    except (OSError, ValueError, KeyError, TypeError):
        raise AnsibleError(f"{description} is damaged; remove it with {archive.name}, which is fetched again") from None


class LookupModule(LookupBase):
    """How Ansible finds it."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[list[dict[str, Any]]]:
        """One list a folder."""
        self.set_options(var_options=variables, direct=kwargs)
        return [archives_in(Path(term).expanduser()) for term in terms]
