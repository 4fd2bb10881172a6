"""Finds a file of the control host as whoever calls ansible-playbook means it."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: control_path
author: The edgellm authors
short_description: A path of the control host, in full
description:
  - A relative path is one of the folder that ansible-playbook was called in, wherever the variable is set; C(~) is the
    home of who called it.
options:
  _terms:
    description: The path.
    type: str
    required: true
"""
RETURN = """
_raw:
  description:
    - The path in full.
  type: list
  elements: path
"""


class LookupModule(LookupBase):
    """How Ansible finds it."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[str]:
        """One path a term."""
        self.set_options(var_options=variables, direct=kwargs)
        return [os.path.abspath(os.path.expanduser(term)) for term in terms]
