"""Decides which board builds which engine, and who takes it from whom: each engine is built once in the whole fleet.

A board's answer is what the role's program ``engines`` prints: the engines that it has by their key, and for each of
its models what is wanted. A model whose files are absent has no key yet: then its ``wanted`` says what would be built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

SHORT_KEY_DIGITS = 16  # of a key, in an engine's name

Answer = Mapping[str, Any]
Want = Mapping[str, Any]


def engine_plan(
    boards: Mapping[str, Answer],
    archives: Sequence[Mapping[str, Any]],
    others: Mapping[str, Answer] | None = None,
    kept_of: Sequence[str] = (),
) -> dict[str, Any]:
    """``boards`` are those that are to have their engines, ``others`` were asked whether they have them already, and
    ``archives`` lie on the control host. What boards of ``kept_of`` have is to lie there too."""
    plan = _Plan(boards, archives, others or {})
    for board, answer in boards.items():
        for want in _missing(answer):
            plan.find(board, want)
    for board in kept_of:
        for want in boards[board]["wants"]:
            if want["engine"] is not None:
                plan.keep(board, want)
    plan.choose_builders()
    return plan.as_dict()


class _Plan:
    def __init__(
        self, boards: Mapping[str, Answer], archives: Sequence[Mapping[str, Any]], others: Mapping[str, Answer]
    ) -> None:
        self._boards, self._archives, self._others = boards, archives, others
        self._takes: dict[str, list[str]] = {board: [] for board in boards}
        self._fetches: dict[str, dict[str, Any]] = {}
        self._unfound: dict[str, list[Want]] = {}

    def find(self, board: str, want: Want) -> None:
        archive = next((one["engine"] for one in self._archives if _is_archive_of(one, want)), None)
        if archive is not None:
            self._takes[board].append(archive)
            return
        for giver, answer in [*self._boards.items(), *self._others.items()]:
            engine = _engine_of(answer, want)
            if engine is not None:
                self._takes[board].append(engine)
                self._fetch(giver, engine, want)
                return
        self._unfound.setdefault(board, []).append(want)

    def keep(self, board: str, want: Want) -> None:
        if not any(_is_archive_of(one, want) for one in self._archives):
            self._fetch(board, want["engine"], want)

    def _fetch(self, giver: str, engine: str, want: Want) -> None:
        entry = self._fetches.setdefault(engine, {"from": giver, "engine": engine, "key": want["key"], "wanted": []})
        entry["wanted"] = sorted({*entry["wanted"], want["wanted"]})

    def choose_builders(self) -> None:
        """In their order; one whose engines another builds, or some of them, waits for it."""
        self._builds: list[str] = []
        self._waits: dict[str, list[str]] = {}
        for board, wants in self._unfound.items():
            before = [one for one in self._builds if any(_are_same(a, b) for a in self._unfound[one] for b in wants)]
            if before:
                self._waits[board] = before
            else:
                self._builds.append(board)

    def as_dict(self) -> dict[str, Any]:
        """``fetches`` and ``signs`` name the board whose turn on the control host it is: one does what all need."""
        first = next(iter(self._boards), None)
        fetches: dict[str, list[dict[str, Any]]] = {board: [] for board in self._boards}
        for entry in self._fetches.values():
            fetches[entry["from"] if entry["from"] in self._boards else str(first)].append(entry)
        signs: dict[str, list[str]] = {board: [] for board in self._boards}
        seen: set[str] = set()
        for board, engines in self._takes.items():
            signs[board] = [engine for engine in engines if engine not in seen and engine not in self._fetches]
            seen |= {*engines}
        return {
            "takes": self._takes,
            "fetches": fetches,
            "signs": signs,
            "builds": self._builds,
            "waits": self._waits,
            "asks": next(iter(self._unfound), ""),
        }


def _missing(answer: Answer) -> Iterable[Want]:
    return (want for want in answer["wants"] if want["engine"] is None)


def _engine_of(answer: Answer, want: Want) -> str | None:
    """What a board has of it, by its name."""
    if want["key"] is not None:
        found: str | None = answer["engines"].get(want["key"])
        return found
    return next((one["engine"] for one in answer["wants"] if one["engine"] and _are_same(one, want)), None)


def _are_same(one: Want, other: Want) -> bool:
    if one["key"] is not None and other["key"] is not None:
        return bool(one["key"] == other["key"])
    return bool(one["wanted"] == other["wanted"])


def _is_archive_of(archive: Mapping[str, Any], want: Want) -> bool:
    if want["key"] is not None:
        key = archive["key"] or archive["engine"].rpartition("-")[2]
        return bool(key[:SHORT_KEY_DIGITS] == want["key"][:SHORT_KEY_DIGITS])
    return want["wanted"] in archive["wanted"]


class FilterModule:
    """How Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"engine_plan": engine_plan}
