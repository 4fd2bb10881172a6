#!/usr/bin/python
# Licence: Apache-2.0
"""Documentation alone: the action plugin of this name does the work, on the control host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: board_record
short_description: Write down how far a board is
description:
  - Writes the record of a board into a file of the control host, as JSON, whole or not at all. Nothing is asked of the
    board.
options:
  file:
    description: The file, on the control host. Its folder must be there.
    type: path
    required: true
  record:
    description: The record.
    type: dict
    required: true
attributes:
  check_mode:
    support: full
author: edgellm (@edgellm)
"""

EXAMPLES = r"""
- name: Write down that the board is drained
  edgellm.appliance.board_record:
    file: "{{ rollout_record_file }}"
    record: "{{ rollout_record }}"
"""

RETURN = r"""
"""
