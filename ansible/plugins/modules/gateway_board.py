#!/usr/bin/python
# Licence: Apache-2.0
"""Ansible module: takes a board out of the gateway, or back into it, and waits until that holds."""

from __future__ import annotations

import csv
import os
import socket as sockets
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: gateway_board
short_description: Take a board out of the gateway, or back in
description:
  - Runs on the gateway and speaks to HAProxy's runtime socket; nothing is reloaded.
  - A board that is out gets no new request, also of clients that were at it; what it answers goes on.
  - The state is written down for HAProxy's next start or reload.
options:
  name:
    description: The board, as the gateway's configuration names it.
    type: str
    required: true
  state:
    description: V(out) of the gateway, or V(in) it.
    type: str
    choices: [out, in]
    required: true
  wait_seconds:
    description:
      - For V(out), time that requests in flight have to end; what is left after it is told, and no failure.
      - For V(in), time until the gateway must find the board ready.
    type: int
    default: 60
  backend:
    description: HAProxy's backend of the boards.
    type: str
    default: boards
  socket:
    description: HAProxy's runtime socket.
    type: path
    default: /run/haproxy/admin.sock
  state_file:
    description: File that HAProxy reads at its start.
    type: path
    default: /var/lib/haproxy/edgellm-state
attributes:
  check_mode:
    support: full
author: edgellm (@edgellm)
"""

EXAMPLES = r"""
- name: Take a board out of the gateway before it is upgraded
  edgellm.appliance.gateway_board:
    name: "{{ inventory_hostname }}"
    state: out
    wait_seconds: 120
  delegate_to: gateway-1
"""

RETURN = r"""
was:
  description: Status of the board before, in HAProxy's words.
  returned: success
  type: str
  sample: UP
status:
  description: Status of the board after.
  returned: success
  type: str
  sample: MAINT
in_flight:
  description: Requests that the board still answers.
  returned: success
  type: int
"""

POLL_SECONDS = 0.2
ANSWER_SECONDS = 10.0
CHECK_PASSED = ("L7OK", "L6OK", "L4OK")


class GatewayError(Exception):
    """What a person can do something about."""


def ask(path, command):
    """The answer of HAProxy to one command. Raises GatewayError."""
    try:
        with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(path)
            connection.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
    except OSError as error:
        reason = error.strerror or error
        raise GatewayError(f"{path}: HAProxy does not answer: {reason} — does haproxy.service run?") from None


def boards(path, backend):
    """What HAProxy tells of each board, by name."""
    table = ask(path, "show stat -1 4 -1").removeprefix("# ").splitlines()
    return {row["svname"]: row for row in csv.DictReader(table) if row["pxname"] == backend}


def board(path, backend, name):
    found = boards(path, backend)
    if name not in found:
        raise GatewayError(f"{name}: no such board in the gateway, which has: {', '.join(sorted(found)) or 'none'}")
    return found[name]


def in_flight(row):
    return int(row["scur"] or 0) + int(row["qcur"] or 0)


def is_ready(row):
    return row["status"].startswith("UP") and row["check_status"].lstrip("* ") in CHECK_PASSED


def write_down(path, state_file):
    """For the next start: every board's state, whole or not at all."""
    handle, unfinished = tempfile.mkstemp(dir=os.path.dirname(state_file), prefix=".edgellm-state-")
    with os.fdopen(handle, "w") as stream:
        stream.write(ask(path, "show servers state"))
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(unfinished, state_file)


def bring_about(wanted, path, backend, name, wait_seconds):
    """Returns the board as it is in the end, and whether that is what was wanted."""
    said = ask(path, f"set server {backend}/{name} state {'maint' if wanted == 'out' else 'ready'}").strip()
    if said:
        raise GatewayError(f"{name}: HAProxy refused: {said}")
    deadline = time.monotonic() + wait_seconds
    while True:
        row = board(path, backend, name)
        reached = in_flight(row) == 0 if wanted == "out" else is_ready(row)
        if reached or time.monotonic() >= deadline:
            return row, reached
        time.sleep(POLL_SECONDS)


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["out", "in"], "required": True},
            "wait_seconds": {"type": "int", "default": 60},
            "backend": {"type": "str", "default": "boards"},
            "socket": {"type": "path", "default": "/run/haproxy/admin.sock"},
            "state_file": {"type": "path", "default": "/var/lib/haproxy/edgellm-state"},
        },
        supports_check_mode=True,
    )
    wanted, name, path = module.params["state"], module.params["name"], module.params["socket"]
    backend = module.params["backend"]
    try:
        before = board(path, backend, name)
        is_out = before["status"].startswith("MAINT")
        changed = is_out != (wanted == "out")
        row, reached = before, True
        if not module.check_mode:
            row, reached = bring_about(wanted, path, backend, name, module.params["wait_seconds"])
            write_down(path, module.params["state_file"])
    except GatewayError as error:
        module.fail_json(msg=str(error))
    told = {"was": before["status"], "status": row["status"], "in_flight": in_flight(row), "changed": changed}
    if wanted == "in" and not reached:
        module.fail_json(
            msg=f"{name} is not ready by the gateway's check after {module.params['wait_seconds']} s: {row['status']}, "
            f"{row['check_status']} {row['last_chk']}".strip(),
            **told,
        )
    module.exit_json(**told)


if __name__ == "__main__":
    main()
