"""What edgellm would refuse of clients' names and keys. Boards get hashes alone, which tell of no key's length."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

# As the daemon has them: edgellm/service/api_keys.py.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KEY = re.compile(r"[!-~]+")
KEY_CHARACTERS_MIN = 16


def api_key_mistakes(rows: Iterable[Mapping[str, Any]], clients: Iterable[str] = ()) -> list[str]:
    """A line for each row of edgellm_api_keys, and name of edgellm_clients, that is refused. None holds a key."""
    return list(_mistakes(list(rows), list(clients)))


def _mistakes(rows: list[Mapping[str, Any]], clients: list[str]) -> Iterator[str]:
    for number, row in enumerate(rows, start=1):
        place = f"edgellm_api_keys, row {number}"
        if not NAME.fullmatch(str(row.get("name", ""))):
            yield f"{place}: a client's name has up to 64 letters, digits, dots, dashes and underscores"
        key = str(row.get("key", ""))
        if not KEY.fullmatch(key) or len(key) < KEY_CHARACTERS_MIN:
            yield f"{place}: a key has {KEY_CHARACTERS_MIN} characters at least, and neither blanks nor line ends"
    for name in clients:
        if not NAME.fullmatch(str(name)):
            yield f"edgellm_clients: {name}: a client's name has up to 64 letters, digits, dots, dashes and underscores"
    for variable, names in (("edgellm_api_keys", [str(row.get("name")) for row in rows]), ("edgellm_clients", clients)):
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{variable}: {name} is there {count} times; give each client its own name"


class FilterModule:
    """How Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"api_key_mistakes": api_key_mistakes}
