"""The states of each broker over time, from facts of all kinds (pure).

A broker's own `state` lines come first.  Of what others say of it, an end is believed (its process ended, its node was
fenced, it does not answer); Pacemaker's roles are taken for nodes of which there is no broker's log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spark_jobs.data import Row
from spark_jobs.solve.signs import CLUSTER, MANAGER, OWN, attr

_OPERATIONS: Final = {"promote": "promoted", "demote": "unpromoted", "stop": "down", "start": "unpromoted"}
_OWN_ENDS: Final = ("stop", "fenced_self", "log_end")


@dataclass(frozen=True)
class Edge:
    """us: when, at the earliest, at the latest; `place`: of the line that says it."""

    at: int
    low: int
    high: int
    place: str = ""


@dataclass(frozen=True)
class Band:
    """`begin`, `end`: None beyond what is known."""

    state: str
    begin: Edge | None
    end: Edge | None = None


@dataclass(frozen=True)
class Role:
    """Of primary: certain in [from_high, to_low], possible in [from_low, to_high]; None without an end."""

    node: str
    term: int | None
    from_low: int
    from_high: int
    to_low: int | None
    to_high: int | None


def edge(event: Row) -> Edge:
    return Edge(event["ts_est"], event["ts_lo"], event["ts_hi"], event["place"])


def nodes(document: Row) -> list[str]:
    """Those that have, or had, a broker."""
    found = {event.get("node") for event in document["events"] if event.get("source") in (*OWN, *CLUSTER)}
    found |= {span["node"] for span in document["primary_spans"]}
    found |= {document["incident"]["old_primary"], document["incident"]["new_primary"]}
    found |= {e.get("peer") for e in document["events"] if e.get("source") == MANAGER and e["kind"] in _OF_MANAGER}
    return sorted(name for name in found if name)


_OF_MANAGER: Final = ("start", "exit", "hung", "awake", "kill", "promoted")


def bands(document: Row) -> dict[str, list[Band]]:
    """node → its bands by time, without gaps."""
    scene = _BandScene(document["events"])
    ends = {place: span for span in document["primary_spans"] if (place := f"{span['to_file']}:{span['to_line']}")}
    changes: dict[str, list[tuple[Edge, str]]] = defaultdict(list)
    last: dict[str, str] = {}
    for event in document["events"]:
        node, state = scene.change(event, last)
        if not node or not state:
            continue
        if state not in ("hung", "down"):
            last[node] = state
        span = ends.get(event["place"])
        sure = edge(event)
        # an end that others saw was somewhere between its last sign of life and that
        known = span is not None and span["node"] == node and state == "down"
        low = span["to_lo"] if known and span is not None and span["to_lo"] is not None else sure.low
        changes[node].append((Edge(sure.at, min(low, sure.low), sure.high, sure.place), state))
    return {node: _joined(changes.get(node, []), _first(document, node)) for node in nodes(document)}


def _first(document: Row, node: str) -> str:
    """Before all lines: its role, as far as any log has it."""
    spans = [span for span in document["primary_spans"] if span["node"] == node]
    begin = document["incident"]["begin"]
    return "promoted" if any(span["from_est"] <= begin for span in spans) else "unknown"


class _BandScene:
    """`own`: nodes of which there is a broker's log; `resources`: of Pacemaker, those that can be promoted."""

    def __init__(self, events: Iterable[Row]) -> None:
        listed = list(events)
        self.own = {event.get("node") for event in listed if event.get("source") in OWN}
        self.resources = {_resource(event) for event in listed if attr(event, "task") in ("promote", "demote")} - {""}

    def change(self, event: Row, last: Mapping[str, str]) -> tuple[str | None, str | None]:
        """(node, its state from now on)"""
        kind, source, node, peer = event["kind"], event.get("source"), event.get("node"), event.get("peer")
        if source in OWN:
            if kind == "state":
                return node, event.get("new")
            return node, "joining" if kind == "start" else "down" if kind in _OWN_ENDS else None
        if source == MANAGER:
            states = {"exit": "down", "kill": "down", "hung": "hung", "awake": last.get(peer or "", "unknown")}
            if peer not in self.own:
                states |= {"start": "joining", "promoted": "promoted"}
            return peer, states.get(kind)
        if kind in ("start", "stopped") and attr(event, "daemon") == "pacemakerd" and node not in self.own:
            return node, "up" if kind == "start" else "down"
        if kind == "fence_op_done":
            return peer, "down" if event.get("result") == "OK" else None
        return self._by_agent(event) if kind in ("op_result", "op_unexpected") else (None, None)

    def _by_agent(self, event: Row) -> tuple[str | None, str | None]:
        task, result, node = attr(event, "task"), event.get("result"), attr(event, "target") or event.get("peer")
        if _resource(event) not in self.resources:
            return None, None
        if task == "monitor":
            return node, "down" if result == "not running" and not attr(event, "op").endswith("_0") else None
        if node in self.own or result != "ok":
            return None, None
        return node, _OPERATIONS.get(task)


def _resource(event: Row) -> str:
    return attr(event, "resource").partition(":")[0]


def _joined(changes: Iterable[tuple[Edge, str]], first: str) -> list[Band]:
    found: list[Band] = []
    begin: Edge | None = None
    state = first
    for at, new in sorted(changes, key=lambda change: (change[0].at, change[0].place)):
        if new != state:
            found.append(Band(state, begin, at))
            begin, state = at, new
    return [*found, Band(state, begin)]


def roles(document: Row) -> dict[str, list[Role]]:
    found: dict[str, list[Role]] = defaultdict(list)
    for span in document["primary_spans"]:
        low = span["from_lo"] if span["from_lo"] is not None else span["from_est"]
        times = (low, span["from_hi"], span["to_lo"] if span["to_hi"] is not None else None, span["to_hi"])
        found[span["node"]].append(Role(span["node"], span["term"], *times))
    return found
