"""ResponseStore: bounded in number and bytes, and each client's own."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.api.response_store import ResponseStore
from edgellm.errors import StoredResponseNotFoundError


def response(name: str, size_bytes: int = 0) -> dict[str, Any]:
    return {"id": name, "text": "x" * size_bytes}


def kept(store: ResponseStore, *names: str, client: str = "me") -> list[str]:
    found = []
    for name in names:
        try:
            store.get(client, name)
        except StoredResponseNotFoundError:
            continue
        found.append(name)
    return found


def test_the_oldest_unused_goes_first() -> None:
    store = ResponseStore(entries_max=2, bytes_max=10_000)
    store.put("me", response("a"), [])
    store.put("me", response("b"), [])
    store.get("me", "a")
    store.put("me", response("c"), [])
    assert kept(store, "a", "b", "c") == ["a", "c"]
    assert len(store) == 2


def test_bytes_are_bounded_with_the_conversations() -> None:
    store = ResponseStore(entries_max=100, bytes_max=1000)
    for number in range(10):
        store.put("me", response(f"r{number}", 100), [{"role": "user", "content": "y" * 100}])
        assert store.size_bytes <= 1000
    assert kept(store, *(f"r{number}" for number in range(10))) == ["r7", "r8", "r9"]
    store.put("me", response("large", 2000), [])
    assert kept(store, "large", "r9") == ["r9"]


def test_putting_one_again_counts_it_once() -> None:
    store = ResponseStore(entries_max=10, bytes_max=1000)
    store.put("me", response("a", 100), [])
    before = store.size_bytes
    store.put("me", response("a", 100), [])
    assert (store.size_bytes, len(store)) == (before, 1)
    store.delete("me", "a")
    assert (store.size_bytes, len(store)) == (0, 0)


def test_it_belongs_to_the_client_it_was_made_for() -> None:
    store = ResponseStore(entries_max=10, bytes_max=1000)
    store.put("me", response("a"), [])
    store.put("you", response("a", 3), [])
    for call in (store.get, store.delete):
        with pytest.raises(StoredResponseNotFoundError):
            call("her", "a")
    store.forget("you")
    assert kept(store, "a", client="you") == []
    assert kept(store, "a") == ["a"]


@pytest.mark.parametrize("limits", [(0, 1000), (10, 0)])
def test_a_limit_of_zero_turns_it_off(limits: tuple[int, int]) -> None:
    assert not ResponseStore(*limits).is_on
    assert ResponseStore(1, 1).is_on
