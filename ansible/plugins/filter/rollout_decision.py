"""Decides what a rollout or a rollback has to do with a board, by what was written down and what the board says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

FORMAT = 2
UNDER_WAY, DONE = "under way", "done"
GOES, RETURNS, STAYS, SETTLES = "goes", "returns", "stays", "settles"

Record = Mapping[str, Any]


def rollout_decision(
    records: Mapping[str, Record],
    board: str,
    current: Mapping[str, Any],
    wanted: str,
    time: str,
    play: Sequence[str],
    *,
    is_rollback: bool = False,
    is_settled: bool = False,
) -> dict[str, Any]:
    """``current`` is the release that serves, ``wanted`` the one to bring: empty is the one of before the last rollout
    to a board of ``play``. ``is_settled``: nothing runs on the board, and what was begun there is undone.

    ``does`` is *goes*; *returns*, into the gateway alone; *stays*; or *settles*: first what another run began must end.
    """
    own = records.get(board, {})
    decide = _rollback if is_rollback else _rollout
    does, target, undoes, said = decide(records, board, own, current, wanted, play)
    if (
        does in (GOES, RETURNS)
        and _is_same(own, target, undoes, is_rollback=is_rollback)
        and own["outcome"] == UNDER_WAY
    ):
        last = own["steps"][-1]["step"] if own["steps"] else "its beginning"
        return {"does": GOES, "release": target, "record": dict(own), "said": f"goes on with {target} after {last}"}
    if does in (GOES, RETURNS) and own.get("outcome") == UNDER_WAY and not is_settled:
        return {
            "does": SETTLES,
            "release": "",
            "record": dict(own),
            "said": f"{own['wanted']} was under way: it ends first",
        }
    record = {
        "format": FORMAT,
        "board": board,
        "wanted": target,
        "undoes": undoes if is_rollback else "",
        "is_rollback": is_rollback,
        "ticket": f"{time} {board}",
        "was": current["id"],
        "release": "",
        "outcome": UNDER_WAY,
        "reason": "",
        "steps": [],
    }
    return {"does": does, "release": target, "record": dict(own) if does == STAYS else record, "said": said}


def _is_same(own: Record, target: str, undoes: str, *, is_rollback: bool) -> bool:
    is_of_kind = bool(own.get("is_rollback", False)) == is_rollback
    return is_of_kind and own.get("wanted") == target and own.get("undoes", "") == (undoes if is_rollback else "")


def _rollout(
    records: Mapping[str, Record], board: str, own: Record, current: Mapping[str, Any], wanted: str, play: Sequence[str]
) -> tuple[str, str, str, str]:
    is_there = own.get("outcome") == DONE and own["release"] == current["id"]
    if is_there and _is_same(own, wanted, "", is_rollback=False):
        return STAYS, wanted, "", f"{wanted} serves already"
    return GOES, wanted, "", f"{current['id']} makes room for {wanted}"


def _rollback(
    records: Mapping[str, Record], board: str, own: Record, current: Mapping[str, Any], wanted: str, play: Sequence[str]
) -> tuple[str, str, str, str]:
    if wanted:
        undoes = own.get("undoes") or own.get("wanted", "")
        if wanted in (current["id"], current["version"]):
            does = RETURNS if own.get("outcome") == UNDER_WAY else STAYS
            return does, wanted, undoes, f"{wanted} serves already"
        return GOES, wanted, undoes, f"{current['id']} makes room for {wanted}"
    undone = _last_rollout([records[name] for name in play if name in records])
    name, serving = undone["undoes"] or undone["wanted"], current["id"]
    if own.get("is_rollback") and own["undoes"] == name:
        if own["outcome"] == DONE:
            return STAYS, own["wanted"], name, f"{own['wanted']} is back already"
        return GOES, own["wanted"], name, f"{serving} makes room for {own['wanted']}"
    if own.get("is_rollback") or own.get("wanted") != name:
        return STAYS, serving, name, f"was not in the rollout of {name}: {serving} stays"
    if serving == own["was"]:
        does = RETURNS if own["outcome"] == UNDER_WAY else STAYS
        return does, serving, name, f"{serving} served before {name} too, and stays"
    if own["outcome"] == DONE and own["release"] not in ("", serving):
        return STAYS, serving, name, f"another release than {name} was brought since: {serving} stays"
    return GOES, own["was"], name, f"{serving} makes room for {own['was']}"


def _last_rollout(records: Sequence[Record]) -> dict[str, Any]:
    """What it wanted and, where it was a rollback itself, what that undoes."""
    if not records:
        raise AnsibleFilterError(
            "no rollout to these boards is known on this control host; name the release that they are to go back to: "
            "-e rollout_release=… (edgellm upgrade --list on a board tells which are kept)"
        )
    last = max(records, key=lambda one: str(one["ticket"]))
    return {"wanted": last["wanted"], "undoes": last.get("undoes", "")}


class FilterModule:
    """How Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rollout_decision": rollout_decision}
