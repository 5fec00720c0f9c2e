"""Ordinary resources of Pacemaker (primitives, members of groups, clones): where they ran, and when not (pure).

A resource is up on a node by a start, a migration or a monitor that found it; it ends there by a stop, by a monitor
that does not find it, or with its node's fencing.  While another instance of it is up, nothing is interrupted.  The
broker's is not here (see `primaries`), nor are the devices that fence.  Others that can be promoted are up where they
are primary.

    what          moved (up again on another node), restarted (on the same), stopped (no line shows it up again)
    down_lo, _hi  us without it, at the least and at the most; None if the lines do not say it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.schema import Event
from spark_jobs.solve.signs import (
    CLUSTER,
    MERGE,
    Facts,
    attr,
    certainly_before,
    is_done,
    is_fenced,
    places,
    subject,
)

Row = dict[str, Any]
_FOUND = ("ok", "promoted")
_ELSEWHERE = ""
"""Where it runs after its node has given it away, until another one says that it has it."""


@dataclass(frozen=True)
class Move:
    """`end`: the line that says that it was up on `old` no longer; `alive`: us, the last line of before on that node;
    `start`: it is up again."""

    resource: str
    old: str
    end: Event
    alive: int | None
    start: Event | None = None

    @property
    def what(self) -> str:
        if self.start is None:
            return "stopped"
        return "restarted" if subject(self.start) == self.old else "moved"

    @property
    def down(self) -> tuple[int | None, int | None]:
        """us, at the least and at the most."""
        if self.start is None:
            return None, None
        exact = is_done(self.end, "stop") or is_done(self.end, "demote")
        since = self.end["ts_lo"] if exact else self.alive
        most = None if since is None else max(0, self.start["ts_hi"] - since)
        return max(0, self.start["ts_lo"] - self.end["ts_hi"]), most


def moves(facts: Facts) -> list[Move]:
    """By time of their ends."""
    watch = _Watch(facts)
    for event in facts.rows:
        watch.see(event)
    return sorted([*watch.found, *watch.ended.values()], key=lambda move: (move.end["ts_est"], move.resource))


def rows(found: Iterable[Move], lines: Sequence[Event]) -> list[Row]:
    """As the table `resources` has them: those that ended by one of the incident's lines."""
    here = {id(event) for event in lines}
    return [_row(move) for move in found if id(move.end) in here]


def _row(move: Move) -> Row:
    low, high = move.down
    return {
        "resource": move.resource,
        "what": move.what,
        "old_node": move.old,
        "new_node": subject(move.start) if move.start else None,
        "begin": move.end["ts_est"],
        "end": move.start["ts_est"] if move.start else None,
        "down_lo": low,
        "down_hi": high,
        "evidence": places(event for event in (move.end, move.start) if event is not None),
    }


class _Watch:
    """What is up where, line after line."""

    def __init__(self, facts: Facts) -> None:
        self.found: list[Move] = []
        self.ended: dict[str, Move] = {}
        self._facts = facts
        self._up: dict[str, set[str]] = {}
        self._fenced: dict[str, Event] = {}

    def see(self, event: Event) -> None:
        if is_fenced(event):
            before = self._fenced.get(event["peer"])
            if (
                before is None or event["ts_lo"] - before["ts_hi"] > MERGE
            ):  # not the controller's later word of the same
                self._fenced[event["peer"]] = event
            for name in sorted(name for name, nodes in self._up.items() if event["peer"] in nodes):
                self._end(name, event["peer"], event)
        name = attr(event, "resource").partition(":")[0]
        if not name or name in self._facts.resources or name in self._facts.devices:
            return
        if event["kind"] == "plan":
            self._planned(name, event)
        elif event["kind"] in ("op_result", "op_confirmed", "op_unexpected"):
            self._told(name, subject(event), event)

    def _told(self, name: str, node: str, event: Event) -> None:
        task, result = attr(event, "task"), event.get("result") or ""
        begin, end = ("promote", "demote") if name in self._facts.promotable else ("start", "stop")
        looked = task in ("monitor", "probe")
        found = looked and result in _FOUND[begin == "promote" :]
        if is_done(event, begin) or is_done(event, "migrate_from") or found:
            move = self.ended.pop(name, None)
            if move is not None:
                self.found.append(Move(name, move.old, move.end, move.alive, event))
            self._up[name] = self._up.get(name, set()) - {_ELSEWHERE} | {node}
        elif is_done(event, "migrate_to"):
            self._up[name] = self._up.get(name, set()) - {node} | {_ELSEWHERE}
        elif (is_done(event, end) or (looked and result == "not running")) and self._was_up(name, node, task == end):
            self._end(name, node, event)

    def _was_up(self, name: str, node: str, stopped: bool) -> bool:
        """A stop of what no line here knows says that it ran."""
        return node in self._up.get(name, ()) or (stopped and name not in self._up)

    def _planned(self, name: str, event: Event) -> None:
        """A plan says where it was, if no line here has shown it."""
        old = attr(event, "origin") if attr(event, "task") in ("move", "recover") else ""
        if old and name not in self._up and name not in self.ended:
            self._up[name] = {old}
            if old in self._fenced:
                self._end(name, old, self._fenced[old])

    def _end(self, name: str, node: str, event: Event) -> None:
        left = self._up.setdefault(name, {node})
        left.discard(node)
        if not left:
            self.ended[name] = Move(name, node, event, _alive(self._facts, node, event))


def _alive(facts: Facts, node: str, end: Event) -> int | None:
    """us: the last line that the node's own cluster software wrote before."""
    own = (e for e in facts.back_from(end) if e.get("node") == node and e.get("source") in CLUSTER)
    return next((e["ts_lo"] for e in own if certainly_before(e, end)), None)
