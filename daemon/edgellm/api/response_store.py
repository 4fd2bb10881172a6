"""ResponseStore: answers that later requests may build on, in memory, bounded in number and bytes."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgellm.errors import StoredResponseNotFoundError
from edgellm.media.media_input import MediaInput


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """``response`` is the answer's JSON text; ``messages`` is the JSON text of the whole conversation up to it, which
    brought ``media``, whose files are the store's.
    """

    response: bytes
    messages: bytes
    media: tuple[MediaInput, ...] = ()

    @property
    def size_bytes(self) -> int:
        files_bytes = sum(file.size_bytes for each in self.media for file in each.files)
        return len(self.response) + len(self.messages) + files_bytes

    def close(self) -> None:
        for each in self.media:
            for file in each.files:
                file.close()


class ResponseStore:
    """Each answer belongs to the client it was made for: for another it is not there. The oldest unused go first.

    An answer keeps its whole conversation, so that it can be built on when those before it are gone.
    """

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self.size_bytes = 0
        self.change(entries_max, bytes_max)

    def change(self, entries_max: int, bytes_max: int) -> None:
        """Other limits; what is over them goes."""
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._drop_excess()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_on(self) -> bool:
        return self._entries_max > 0 and self._bytes_max > 0

    def put(
        self,
        client: str,
        response: dict[str, Any],
        messages: Sequence[dict[str, Any]],
        media: Sequence[MediaInput] = (),
    ) -> None:
        """One that is larger than the whole store is not kept. The files of ``media`` stay the caller's."""
        self._drop((client, response["id"]))
        kept = tuple(replace(each, files=tuple(file.again() for file in each.files)) for each in media)
        entry = StoredResponse(_json(response), _json(messages), kept)
        if entry.size_bytes > self._bytes_max:
            entry.close()
            return
        self._entries[client, response["id"]] = entry
        self.size_bytes += entry.size_bytes
        self._drop_excess()

    def get(self, client: str, response_id: str, *, param: str | None = None) -> StoredResponse:
        """Raises StoredResponseNotFoundError, also for an answer that belongs to somebody else."""
        entry = self._entries.get((client, response_id))
        if entry is None:
            raise StoredResponseNotFoundError(
                f"{param or 'The id'} names no response that this server keeps for you.", param=param
            )
        self._entries.move_to_end((client, response_id))
        return entry

    def delete(self, client: str, response_id: str) -> None:
        """Raises StoredResponseNotFoundError."""
        self.get(client, response_id)
        self._drop((client, response_id))

    def forget(self, client: str) -> None:
        """Drop all that is kept for a client."""
        for key in [key for key in self._entries if key[0] == client]:
            self._drop(key)

    def _drop_excess(self) -> None:
        while self._entries and (len(self._entries) > self._entries_max or self.size_bytes > self._bytes_max):
            self._drop(next(iter(self._entries)))

    def _drop(self, key: tuple[str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.size_bytes
            entry.close()


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
