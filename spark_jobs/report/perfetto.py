"""An incident as a trace: JSON that ui.perfetto.dev and chrome://tracing open (pure).

Lanes, from the top: the phases of the incident, one each, since some of them are at the same time; for each node its
states, when it held the role of primary, its lines as marks; each client's outages.  µs since 1970 UTC, on the common
time axis; what is not known to end, or not to begin, goes to the end of what is shown.  A click shows bounds and line.

The format: Google's "Trace Event Format": events of `ph` X (a stretch), i (a moment), M (names of lanes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from spark_jobs.data import Row
from spark_jobs.report import bands, headline, scene, words

Event = dict[str, Any]
Lane = tuple[str, str, list[Event]]
"""Group, name, what is on it."""


def trace(document: Row) -> dict[str, Any]:
    """Of the document of one incident."""
    groups: dict[str, int] = {}
    found: list[Event] = []
    for number, (group, name, events) in enumerate(_lanes(document), 1):
        if group not in groups:
            groups[group] = len(groups) + 1
            found += _named("process", group, groups[group], 0)
        found += _named("thread", name, groups[group], number)
        found += [event | {"pid": groups[group], "tid": number} for event in events]
    about = {"title": headline.title(document["incident"]), "cluster": document["cluster"]}
    return {"traceEvents": found, "displayTimeUnit": "ms", "otherData": about}


def _named(what: str, name: str, pid: int, tid: int) -> list[Event]:
    """And its place: Perfetto sorts by it."""
    place = pid if what == "process" else tid
    return [
        {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": name}},
        {"ph": "M", "name": f"{what}_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": place}},
    ]


def _lanes(document: Row) -> Iterator[Lane]:
    low, high = scene.whole(document)
    high = max([high, *(event["ts_est"] for event in document["events"])])
    title = f"incident {document['number']}: {headline.title(document['incident'])}"
    for row in document["phases"]:
        if row["begin"] is not None:
            yield title, row["phase"], [_stretch(row["phase"], row["begin"], row["end"], high, _of_phase(row))]
    states, roles = bands.bands(document), bands.roles(document)
    for node in bands.nodes(document):
        yield node, "state", list(_states(states[node], low, high))
        if node in roles:
            yield node, "primary", [_role(role, high) for role in roles[node]]
        yield node, "lines", [_line(event) for event in document["events"] if event.get("node") == node]
    yield from _clients(document["outages"], high)


def _stretch(name: str, begin: int, end: int | None, last: int, more: Row) -> Event:
    known = {} if end is not None else {"end": "not known"}
    until = max(begin, last) if end is None else end
    return {"ph": "X", "name": name, "ts": begin, "dur": max(0, until - begin), "args": {**more, **known}}


def _of_phase(row: Row) -> Row:
    names = ("begin_lo", "begin_hi", "end_lo", "end_hi", "note", "begin_what", "end_what")
    lines = {
        f"{side}_place": f"{row[f'{side}_file']}:{row[f'{side}_line']}"
        for side in ("begin", "end")
        if row[f"{side}_file"]
    }
    return {name: row[name] for name in names if row[name] not in (None, "")} | lines


def _states(of: Iterable[bands.Band], low: int, high: int) -> Iterator[Event]:
    for band in of:
        if band.begin is None and band.end is not None and band.end.at <= low:
            continue
        begin = low if band.begin is None else band.begin.at
        edges = {f"{side}_place": edge.place for side, edge in (("begin", band.begin), ("end", band.end)) if edge}
        yield _stretch(band.state, begin, band.end.at if band.end else None, high, edges)


def _role(role: bands.Role, high: int) -> Event:
    """Where it is certain that it held it."""
    name = "primary" if role.term is None else f"primary, term {role.term}"
    bounds = {"from_lo": role.from_low, "to_hi": role.to_high}
    more = {side: at for side, at in bounds.items() if at is not None}
    return _stretch(name, role.from_high, role.to_low and max(role.to_low, role.from_high), high, more)


def _line(event: Row) -> Event:
    more = {name: event[name] for name in ("place", "raw", "ts_lo", "ts_hi", "source") if event.get(name) is not None}
    return {"ph": "i", "s": "t", "name": words.sentence(event), "ts": event["ts_est"], "args": more}


def _clients(outages: Iterable[Row], high: int) -> Iterator[Lane]:
    of: dict[str, list[Event]] = {}
    for row in sorted(outages, key=lambda row: (row["client_id"] or "", row["ts_begin"])):
        end = None if row["censored"] else row["ts_end"]
        said = _stretch("stood still", row["ts_begin"], end, max(high, row["ts_end"]), {"why": row.get("why") or ""})
        of.setdefault(row["client_id"] or "", []).append(said)
    for client, events in of.items():
        yield "clients", client, events
