"""Looks at the variables of a host, on the control host and before anybody is asked anything."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.edgellm.appliance.plugins.plugin_utils.origins import givers
from ansible_collections.edgellm.appliance.plugins.plugin_utils.variables import value_mistakes, variable_mistakes

SETTINGS = "edgellm_settings"


class ActionModule(ActionBase):
    """How Ansible finds it. It sees variables as they were written, before templates become values."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fails with all that is wrong, in one line."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(
            argument_spec={"own": {"type": "list", "elements": "str", "default": []}}
        )
        variables = task_vars or {}
        names = list(variables["hostvars"][variables["inventory_hostname"]])
        mistakes = [
            *variable_mistakes(names, given["own"]),
            *value_mistakes(variables),
            *self._settings_twice(variables),
        ]
        said = ". ".join(mistakes)
        return {**result, "changed": False, "failed": bool(mistakes), "msg": f"{said}. {HINT}" if mistakes else "none"}

    @staticmethod
    def _settings_twice(variables: dict[str, Any]) -> list[str]:
        """One would replace the other whole."""
        names = givers(variables["hostvars"], variables["inventory_hostname"], SETTINGS)
        if len(names) < 2:
            return []
        return [
            f"{SETTINGS} is set by {' and by '.join(names)}, of which one alone would hold; leave it in one, and "
            f"call it {SETTINGS}_NAME in the others, such as {SETTINGS}_{names[-1].replace('-', '_')}: parts are laid "
            "over it in the order of their names"
        ]


HINT = (
    "What roles have is told by ansible-doc --type role edgellm.appliance.ROLE; a variable of your own that begins "
    "like theirs is to be named in preflight_own_variables"
)
