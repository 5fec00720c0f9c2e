"""What a drawing shows: stretches of time, bars, marks and numbered moments (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.data import Row
from spark_jobs.report import words
from spark_jobs.report.bands import Edge, edge
from spark_jobs.report.headline import phase
from spark_jobs.report.units import with_error
from spark_jobs.solve.signs import CLUSTER, MANAGER, OWN, attr, subject

_SERVICE: Final = ("detection", "decision", "fencing", "promotion", "recovering", "path", "first_client")
_MUCH_LONGER: Final = 3


@dataclass(frozen=True)
class Panel:
    """A stretch of time, us."""

    title: str
    begin: int
    end: int


@dataclass(frozen=True)
class Bar:
    """`name`: the phase, or what is being done."""

    name: str
    label: str
    begin: Edge
    end: Edge


@dataclass(frozen=True)
class Mark:
    """`shape`: its group: token, ring, fencing, good, bad, role, note."""

    at: Edge
    shape: str
    text: str


@dataclass(frozen=True)
class Moment:
    """A bound of a phase; `phases`: `Detection begins`; `event`: the line that says it, if one does."""

    number: int
    at: Edge
    text: str
    node: str
    phases: tuple[str, ...]
    event: Row | None


# ---- panels ---------------------------------------------------------------------------------------------------------


def panels(document: Row) -> list[Panel]:
    """The fail-over; and all of the incident, if that is much longer."""
    low, high = whole(document)
    begin, end = _focus(document, low, high)
    if not document["incident"]["failover"]:
        return [_padded("", min(begin, document["incident"]["begin"]), high)]
    if high - low <= _MUCH_LONGER * (end - begin):
        return [_padded("", low, high)]
    return [_padded("The fail-over", begin, end), _padded("All of it", low, high)]


def whole(document: Row) -> tuple[int, int]:
    """Everything that phases, outages and the incident itself say; if it never ended, until the logs did."""
    incident = document["incident"]
    moments = [row[name] for row in document["phases"] for name in ("begin", "end") if row[name] is not None]
    moments += [incident[name] for name in ("begin", "end") if incident[name] is not None]
    moments += [step[0] for step in document["lane"]["steps"]]
    if incident["end"] is None and document.get("observed"):
        moments.append(document["observed"]["end"])
    return min(moments), max(*moments, min(moments) + 1000)


def _focus(document: Row, low: int, high: int) -> tuple[int, int]:
    rows = [phase(document, name) for name in _SERVICE]
    ends = [row["end"] for row in rows if row["end"] is not None]
    death = phase(document, "fault")
    begin = death["end"] if death["end"] is not None else document["incident"]["begin"]
    end = max([*ends, begin + 1000])
    # clients that wait much longer than the others would squeeze everything else
    last = phase(document, "all_clients")["end"]
    end = max(end, min(last, begin + 4 * (end - begin))) if last is not None else end
    length = end - begin
    if death["begin"] is not None:
        begin = max(death["begin"], begin - length // 2)
    return max(low, begin), min(high, end)


def _padded(title: str, begin: int, end: int) -> Panel:
    margin = max((end - begin) // 24, 500)
    return Panel(title, begin - margin, end + margin)


# ---- phases and moments ---------------------------------------------------------------------------------------------


def bars(document: Row) -> list[Bar]:
    """The phases that are known, by their begin."""
    moved = document["incident"].get("failover", True)
    found = [_bar(row) for row in document["phases"] if row["known"] and (moved or row["duration_us"])]
    return sorted(found, key=lambda bar: (bar.begin.at, bar.end.at))


def _bar(row: Row) -> Bar:
    length = with_error(row["duration_us"], row["duration_lo_us"], row["duration_hi_us"])
    return Bar(row["phase"], f"{words.PHASES[row['phase']][0]} {length}", bound(row, "begin"), bound(row, "end"))


def bound(row: Row, side: str) -> Edge:
    place = f"{row[f'{side}_file']}:{row[f'{side}_line']}" if row[f"{side}_file"] else ""
    return Edge(row[side], row[f"{side}_lo"], row[f"{side}_hi"], place)


def moments(document: Row) -> list[Moment]:
    """All bounds of phases by time, each once."""
    events = {event["place"]: event for event in reversed(document["events"])}
    found: dict[tuple[Any, ...], tuple[Edge, str, str, list[str]]] = {}
    for row in document["phases"]:
        for side, verb in (("begin", "begins"), ("end", "ends")):
            if row[side] is not None:
                at, name = bound(row, side), words.PHASES[row["phase"]][0]
                key = (at.place,) if at.place else (at.at, row[f"{side}_what"])
                entry = found.setdefault(key, (at, row[f"{side}_what"], row[f"{side}_node"] or "", []))
                entry[3].append(f"{name} {verb}")
    made = sorted(found.values(), key=lambda entry: (entry[0].at, entry[0].place, entry[1]))
    return [
        Moment(number, at, _text(events.get(at.place), what), node, tuple(phases), events.get(at.place))
        for number, (at, what, node, phases) in enumerate(made, 1)
    ]


def _text(event: Row | None, what: str) -> str:
    if event is not None:
        return words.sentence(event)
    for prefix, text in words.WORDS["said"].items():
        if what.startswith(prefix):
            return str(text).format(what.removeprefix(prefix))
    return words.plain(what)


# ---- marks and bars of the lanes ------------------------------------------------------------------------------------

_MARKS: Final[dict[str, tuple[str, str, str]]] = words.WORDS["marks"]
_SHAPES: Final = {kind: name for name, (_, _, kinds) in _MARKS.items() for kind in kinds.split()}
SHAPES: Final = {name: text for name, (text, _, _) in _MARKS.items()}
PATHS: Final = {name: path for name, (_, path, _) in _MARKS.items()}
_DRAWN_AS_BANDS: Final = ("state", "log_end", "fsa", "plan", "initiate", "op_confirmed", "fence_notify", "claim")
ROWS: Final = {
    "ring": "Corosync",
    "fencing": "Fencing",
    "operation": "Pacemaker",
}
"""Rows of the lane of Pacemaker and Corosync."""


def shape(event: Row) -> str:
    if event["kind"] == "op_result":
        good = event.get("result") in ("ok", "promoted")
        task = attr(event, "task")
        return "bad" if not good else "role" if task in ("promote", "demote") else "good"
    if event["kind"] == "fence_op_done" and event.get("result") != "OK":
        return "bad"
    return _SHAPES.get(event["kind"], "note")


def marks(events: Iterable[Row]) -> list[Mark]:
    return [Mark(edge(event), shape(event), words.sentence(event)) for event in events]


def of_node(document: Row, node: str) -> list[Row]:
    """Lines of its broker and of the manager about it, apart from its states."""
    return [
        event
        for event in document["events"]
        if event["kind"] not in _DRAWN_AS_BANDS
        and event.get("source") in (*OWN, MANAGER)
        and subject(dict(event)) == node
    ]


def of_cluster(document: Row, row: str) -> list[Row]:
    """What Pacemaker and Corosync say; `row`: one of ROWS."""
    return [
        event
        for event in document["events"]
        if event.get("source") in CLUSTER and event["kind"] not in _DRAWN_AS_BANDS and _row_of(event) == row
    ]


def _row_of(event: Row) -> str:
    drawn = shape(event)
    if event["kind"] in ("fence_op_done", "fence_request", "will_fence"):
        return "fencing"
    return "ring" if drawn in ("token", "ring") else "fencing" if drawn == "fencing" else "operation"


def cluster_bars(document: Row, row: str) -> list[Bar]:
    """What took time there: without the token, being fenced, a transition of the DC."""
    events = [event for event in document["events"] if event.get("source") in CLUSTER]
    if row == "ring":
        return _pairs(events, _is("token_lost"), _is("membership"), "no token")
    if row == "fencing":
        return _pairs(events, _is("fence_request"), _is("fence_op_done"), "fencing of {peer}", ("peer",))
    return _pairs(events, _is_fsa("S_POLICY_ENGINE"), _is_fsa("S_IDLE"), "transition", ("node",))


def _is(kind: str) -> Any:
    return lambda event: event["kind"] == kind


def _is_fsa(new: str) -> Any:
    return lambda event: event["kind"] == "fsa" and event.get("new") == new


def _pairs(events: Sequence[Row], begins: Any, ends: Any, label: str, same: tuple[str, ...] = ()) -> list[Bar]:
    """From the first that begins to the next that ends; `same`: columns that both share."""
    found: list[Bar] = []
    open_: dict[tuple[Any, ...], Row] = {}
    for event in events:
        key = tuple(event.get(name) for name in same)
        if begins(event):
            open_.setdefault(key, event)
        elif ends(event) and key in open_:
            begin = open_.pop(key)
            found.append(Bar("", label.format(peer=event.get("peer")), edge(begin), edge(event)))
    return found
