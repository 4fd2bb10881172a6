"""FieldNames: an error about a prompt in the words of the protocol that asked for it.

Below the API there is one kind of request, with the field names of chat completions. Another protocol gives its own
names for them, and for each message and tool the place it came from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgellm.errors import RequestError

_MESSAGE = re.compile(r"messages\[(\d+)\]")
_TOOL = re.compile(r"tools\[(\d+)\](?:\.function)?")
_PARAMETERS = ".parameters"


@dataclass(frozen=True, slots=True)
class FieldNames:
    """``message_origins`` and ``tool_origins`` have a path for each; ``fields`` maps a field to this protocol's.

    ``message_fields`` does so for fields of a message; an error about another one names the message alone.
    ``messages`` is the field that holds the conversation, ``tool_schema`` the one of a tool that has its parameters.
    ``own_places`` are paths of this protocol's already, of parts that errors name as they came.
    """

    message_origins: Sequence[str]
    tool_origins: Sequence[str]
    messages: str
    tool_schema: str = "parameters"
    fields: Mapping[str, str] = field(default_factory=dict)
    message_fields: Mapping[str, str] = field(default_factory=dict)
    own_places: Sequence[str] = ()

    def rename(self, error: RequestError) -> RequestError:
        """The error with ``param`` renamed, and its name in the message with it."""
        if error.param is None or error.param.startswith(tuple(self.own_places)):
            return error
        param = self._renamed(error.param)
        if param == error.param:
            return error
        return type(error)(error.message.replace(error.param, param), param=param)

    def _renamed(self, param: str) -> str:
        if match := _MESSAGE.match(param):
            index, rest = int(match[1]), self.message_fields.get(param[match.end() + 1 :])
            if index >= len(self.message_origins):
                return self.messages
            return f"{self.message_origins[index]}.{rest}" if rest else self.message_origins[index]
        if param == "messages":
            return self.messages
        if match := _TOOL.match(param):
            index, rest = int(match[1]), param[match.end() :]
            if rest.startswith(_PARAMETERS):
                rest = f".{self.tool_schema}{rest[len(_PARAMETERS) :]}"
            return (self.tool_origins[index] if index < len(self.tool_origins) else "tools") + rest
        for name in sorted(self.fields, key=len, reverse=True):
            if param.startswith(name):
                return self.fields[name] + param[len(name) :]
        return param
