#!/usr/bin/python
# Licence: Apache-2.0
"""Documents the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: variable_check
short_description: Refuse variables that no role has, or that are not what was written
description:
  - Runs on the control host and asks the board nothing.
  - Finds names that begin as variables of the roles do, or are almost one of them, and are none; values that YAML
    has read as a switch where a word is wanted; and C(edgellm_settings) that several groups of a host set.
options:
  own:
    description: Names that the inventory has for itself.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
author: edgellm (@edgellm)
"""

EXAMPLES = r"""
- name: Look at the variables
  edgellm.appliance.variable_check:
"""

RETURN = r"""
"""
