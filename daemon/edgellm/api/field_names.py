"""Field names: an error about a prompt in the words of the protocol that asked for it.

Below the API there is one kind of request, with the field names of chat completions. Another protocol gives its own
names for them, and for each message the place it came from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgellm.errors import RequestError

_MESSAGE = re.compile(r"messages\[(\d+)\]")
_TOOL = re.compile(r"(tools\[\d+\])\.function\.")


@dataclass(frozen=True, slots=True)
class FieldNames:
    """``origins`` has a path for each message; ``names`` maps a field to this protocol's name, longest match first.

    ``messages`` is the field that holds the conversation.
    """

    origins: Sequence[str]
    messages: str
    names: Mapping[str, str] = field(default_factory=dict)

    def rename(self, error: RequestError) -> RequestError:
        """The error with ``param`` renamed, and its name in the message with it."""
        if error.param is None:
            return error
        param = self._renamed(error.param)
        if param == error.param:
            return error
        return type(error)(error.message.replace(error.param, param), param=param)

    def _renamed(self, param: str) -> str:
        if match := _MESSAGE.match(param):
            index = int(match[1])
            return self.origins[index] if index < len(self.origins) else self.messages
        if param == "messages":
            return self.messages
        for name in sorted(self.names, key=len, reverse=True):
            if param.startswith(name):
                return self.names[name] + param[len(name) :]
        return _TOOL.sub(r"\1.", param)
