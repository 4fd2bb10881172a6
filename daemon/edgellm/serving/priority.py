"""Priority classes, and the queue that keeps them: higher classes go first, within one clients take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from enum import Enum
from typing import Generic, Protocol, TypeVar


class Priority(Enum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    def is_above(self, other: Priority) -> bool:
        return _RANK[self] < _RANK[other]


_RANK = {priority: rank for rank, priority in enumerate(Priority)}


class Waiting(Protocol):
    @property
    def client(self) -> str: ...

    @property
    def priority(self) -> Priority: ...


Item = TypeVar("Item", bound=Waiting)


class PriorityQueue(Generic[Item]):
    """Strict order between classes, round robin between the clients of one.

    Nobody starves: see ``take``.
    """

    def __init__(self) -> None:
        self._classes: dict[Priority, OrderedDict[str, deque[Item]]] = {each: OrderedDict() for each in Priority}
        self._went_ahead = dict.fromkeys(Priority, 0)

    def __len__(self) -> int:
        return sum(len(items) for clients in self._classes.values() for items in clients.values())

    def __iter__(self) -> Iterator[Item]:
        for clients in self._classes.values():
            for items in clients.values():
                yield from items

    def put(self, item: Item) -> None:
        self._classes[item.priority].setdefault(item.client, deque()).append(item)

    def take(self, grants_ahead_max: int) -> Item | None:
        """Whose turn it is. A class that so many items of higher ones went ahead of in a row has the next."""
        occupied = [priority for priority in Priority if self._classes[priority]]
        if not occupied:
            return None
        overdue = [priority for priority in occupied if self._went_ahead[priority] >= grants_ahead_max]
        chosen = max(overdue, key=self._went_ahead.__getitem__) if overdue else occupied[0]
        for priority in occupied:
            if chosen.is_above(priority):
                self._went_ahead[priority] += 1
        self._went_ahead[chosen] = 0
        clients = self._classes[chosen]
        client, items = clients.popitem(last=False)
        item = items.popleft()
        if items:
            clients[client] = items  # behind every other client
        return item

    def remove(self, item: Item) -> bool:
        """False when it is not here."""
        clients = self._classes[item.priority]
        items = clients.get(item.client)
        if items is None or item not in items:
            return False
        items.remove(item)
        if not items:
            del clients[item.client]
            self._forget_turn(item.priority)
        return True

    def remove_client(self, client: str) -> Iterator[Item]:
        for priority, clients in self._classes.items():
            yield from clients.pop(client, ())
            self._forget_turn(priority)

    def newest_below(self, priority: Priority) -> Item | None:
        """Who has to make room for one of this class: the last to come of the lowest class, where most wait."""
        for lower in reversed(Priority):
            clients = self._classes[lower]
            if priority.is_above(lower) and clients:
                return max(clients.values(), key=len)[-1]
        return None

    def newest_of_larger_share(self, newcomer: Item) -> Item | None:
        """Who has to make room within the class of ``newcomer``: the last to come of the client of which most wait,
        where even then no fewer of it wait than of the newcomer's client.
        """
        clients = self._classes[newcomer.priority]
        largest = max(clients.values(), key=len, default=None)
        if largest is None or len(largest) < len(clients.get(newcomer.client, ())) + 2:
            return None
        return largest[-1]

    def _forget_turn(self, priority: Priority) -> None:
        if not self._classes[priority]:
            self._went_ahead[priority] = 0
