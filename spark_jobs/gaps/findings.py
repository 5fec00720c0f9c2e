"""Places where evidence is missing, and the reasons (pure).

A gap is not a failure; its text names the conclusions that it prevents.  Kinds:

    failed               a step could not be done for the cluster
    clock-unknown        nothing connects a node's clock with the others
    clock-contradiction  an observation that all others contradict
    order                a cause that seems to be later than its effect
    missing-seq          lines of a process that are not there
    no-log-end           a process that did not write its last line
    torn, undated        a last line without its end; lines of unknown year
    lines-dropped        what rsyslog or journald say they did not write
    coarse               times to the second
    no-log               a node that others name, and that wrote nothing here
    no-broker-log        no log of any broker, or none of one whose node has other logs
    begins-late          a log that begins after the failure: rotated away
    clients-none         no log of any client
    faulty, refused      lines that are none; files that could not be read
    unrecognised         a log of which most lines are of no format that we know: what it says is not in the report
    assumed              a zone or a year that was not given

Times are us on the common axis where a clock is known, else as written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spark_jobs.clocks.pairs import aliases
from spark_jobs.clocks.segments import Clocks
from spark_jobs.schema import Event
from spark_jobs.solve.signs import CLUSTER, Facts, attr, lines_dropped, places, subject

Row = dict[str, Any]
COLUMNS: Final = {
    **dict.fromkeys(("cluster", "incident", "node", "proc", "file"), "string"),
    "line_no": "bigint",
    "kind": "string",
    **dict.fromkeys(("begin", "end", "count"), "bigint"),
    "text": "string",
    "evidence": "array<string>",
}
COARSE: Final = 1_000_000
"""us"""
UNRECOGNISED: Final = "unrecognised"
LINES: Final = ("pacemaker", "corosync", "syslog", "broker_text", "broker_json", "client_json")
"""Kinds of files in which each line says something."""
NO_CLOCKS: Final = Clocks("", {})
_NAMING: Final = frozenset({"peer_state", "will_fence", "fence_request", "fence_op_done", "initiate", "op_request"})


def find(
    cluster: str,
    events: Sequence[Event] = (),
    clocks: Clocks = NO_CLOCKS,
    incidents: Iterable[Mapping[str, Any]] = (),
    **counted: Iterable[Mapping[str, Any]],
) -> list[Row]:
    """All gaps of a cluster.  `counted`: logs, holes, odd (see `gaps.query`), failures, files, notes."""
    given = {name: list(counted.get(name, ())) for name in ("logs", "holes", "odd", "failures", "files", "notes")}
    facts = Facts.of(events)
    began = min((incident["begin"] for incident in incidents), default=None)
    found = [
        *_told(given["failures"]),
        *_clocks(clocks),
        *_holes(given["holes"], given["logs"], clocks),
        *_ends(given["logs"], clocks),
        *_odd(given["odd"]),
        *_dropped(facts),
        *_coarse(given["logs"], clocks),
        *_unheard(events, facts),
        *_brokers(facts),
        *_late(given["logs"], clocks, began),
        *_files(given["files"]),
        *_notes(given["notes"]),
    ]
    if events and not any(log["source"] == "client" for log in given["logs"]) and not facts.clients:
        found.append(_gap("clients-none", "no log of any client: whether a client noticed is not known"))
    rows = [{**dict.fromkeys(COLUMNS), **row, "cluster": cluster} for row in found]
    return sorted(_placed(rows, list(incidents)), key=_key)


def _gap(kind: str, text: str, **columns: Any) -> Row:
    columns.setdefault("count", 1)
    place = [f"{columns['file']}:{columns['line_no']}"] if columns.get("file") and columns.get("line_no") else []
    return {"kind": kind, "text": text, "evidence": place, **columns}


def _placed(rows: Iterable[Row], incidents: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """With the incident in whose time it is, if it has a time."""
    for row in rows:
        begin = row["begin"] if row["begin"] is not None else row["end"]
        end = row["end"] if row["end"] is not None else row["begin"]
        near = [i["incident"] for i in incidents if begin is not None and i["ts_begin"] <= end and begin < i["ts_end"]]
        yield {**row, "incident": near[0] if near else None}


def _key(row: Row) -> tuple[Any, ...]:
    return (row["kind"], *(row[name] or "" for name in ("node", "proc", "file")), row["begin"] or 0, row["text"])


def _at(clocks: Clocks, node: str, wall: int | None) -> int | None:
    """A time that was read on a node's clock."""
    return None if wall is None else clocks.correct({"node": node, "ts_wall": wall})[0]


# ---- steps and clocks -----------------------------------------------------------------------------------------------


def _told(failures: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    for row in failures:
        yield _gap(row["kind"], row["text"])


def _clocks(clocks: Clocks) -> Iterator[Row]:
    for node, segments in clocks.segments.items():
        unknown = [segment for segment in segments if segment.row()["offset_us"] is None]
        if unknown and node != clocks.reference:
            text = f"the clock of {node} is not known: nothing connects its lines with those of other nodes"
            yield _gap("clock-unknown", text, node=node, begin=unknown[0].begin, end=unknown[-1].end)


# ---- lines that are not there ---------------------------------------------------------------------------------------


def _holes(holes: Iterable[Mapping[str, Any]], logs: Iterable[Mapping[str, Any]], clocks: Clocks) -> Iterator[Row]:
    nodes = {log["proc"]: log["node"] for log in logs if log["node"]}
    for hole in holes:
        node, missing = hole["node"] or nodes.get(hole["proc"], ""), hole["seq"] - hole["after_seq"] - 1
        begin, end = _at(clocks, node, hole.get("after_ts")), _at(clocks, node, hole.get("ts_wall"))
        numbers = f"{hole['after_seq'] + 1}" + (f" to {hole['seq'] - 1}" if missing > 1 else "")
        text = f"{hole['proc']}: {_lines(missing)} missing (seq {numbers}): what it did then is not known"
        where = {name: hole.get(name) for name in ("proc", "file", "line_no")}
        yield _gap("missing-seq", text, node=node or None, count=missing, begin=begin, end=end, **where)


def _lines(count: int) -> str:
    return "1 line is" if count == 1 else f"{count} lines are"


def _ends(logs: Iterable[Mapping[str, Any]], clocks: Clocks) -> Iterator[Row]:
    for log in logs:
        if log["ended"] or not log["proc"] or log["source"] not in ("broker", "client", "qpid-cluster"):
            continue
        last = log.get("last_ts") if log["source"] == "client" else _at(clocks, log["node"], log.get("last_ts"))
        what = "what it did in its last 100 ms, and" if log["source"] == "client" else "what it did later, and"
        text = f"{log['proc']} wrote no end: {what} whether it was killed or still ran when the logs were taken"
        where = {"node": log["node"] or None, "proc": log["proc"], "file": log.get("file")}
        yield _gap("no-log-end", f"{text}, is not known", begin=last, **where)


def _odd(odd: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    for row in odd:
        where = {name: row.get(name) for name in ("node", "proc", "file", "line_no", "count")}
        if row["kind"] == "torn":
            yield _gap("torn", f"{row.get('file')} is torn at its end: its last line is lost", **where)
        else:
            text = f"{row.get('file')}: {_lines(row['count'])} without a time: where they belong is not known"
            yield _gap("undated", text, **where)


def _dropped(facts: Facts) -> Iterator[Row]:
    for event in facts.kinds.get("lines_dropped", ()):
        count = attr(event, "count")
        where = {name: event.get(name) for name in ("node", "file", "line_no")}
        at = event["ts_est"]
        number = int(count) if count.isdigit() else None
        yield _gap("lines-dropped", lines_dropped(event), begin=at, end=at, count=number, **where)


# ---- logs that are not there, or coarse -----------------------------------------------------------------------------


def _coarse(logs: Iterable[Mapping[str, Any]], clocks: Clocks) -> Iterator[Row]:
    for log in logs:
        if (log.get("ts_res") or 1) < COARSE:
            continue
        text = f"{log['node']}: times of {log['source']} are to the second: the order within one is not known"
        begin, end = (_at(clocks, log["node"], log.get(name)) for name in ("first_ts", "last_ts"))
        where = {"node": log["node"], "file": log.get("file"), "count": log["lines"]}
        yield _gap("coarse", text, begin=begin, end=end, **where)


def _unheard(events: Iterable[Event], facts: Facts) -> Iterator[Row]:
    """Nodes that others name."""
    known = aliases(event for event in events if event.get("node"))
    named: dict[str, list[Event]] = defaultdict(list)
    for event in facts.rows:
        peer = subject(event) if attr(event, "target") else event.get("peer")
        if peer and event["kind"] in _NAMING:
            named[str(peer)].append(event)
    for name in facts.brokers:
        named.setdefault(name, [])
    for name in sorted(named):
        if name in facts.written or known.get(name) in facts.written:
            continue
        text = f"no log of {name}: only what others say of it is known"
        yield _gap("no-log", text, node=name, evidence=places(named[name][:3]))


def _brokers(facts: Facts) -> Iterator[Row]:
    if not facts.own and facts.rows:
        yield _gap("no-broker-log", "no log of any broker: states, redundancy and confirms are not known")
    for node in sorted({*facts.brokers} & facts.written - {*facts.own}) if facts.own else ():
        yield _gap("no-broker-log", f"no log of the broker on {node}: what it did is not known", node=node)


def _late(logs: Iterable[Mapping[str, Any]], clocks: Clocks, began: int | None) -> Iterator[Row]:
    """Of text logs; other ones have numbers."""
    for log in logs:
        first = _at(clocks, log["node"], log.get("first_ts"))
        if began is None or first is None or first <= began or log["source"] not in (*CLUSTER, "text"):
            continue
        text = f"{log['node']}: the log of {log['source']} begins after the first failure: what came before is not here"
        yield _gap("begins-late", text, node=log["node"], file=log.get("file"), end=first)


def _files(files: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    for row in files:
        odd = (row.get("faulty") or 0) + (row.get("continued") or 0)
        if row.get("kind") in LINES and 2 * odd > (row.get("lines") or 0):
            text = f"{row['name']}: {_lines(odd)} of no format that is known here: what it says is not in this report"
            yield _gap(UNRECOGNISED, text, file=row["name"], count=odd)
        elif row.get("faulty"):
            text = f"{row['name']}: {_lines(row['faulty'])} no event and left out"
            yield _gap("faulty", text, file=row["name"], count=row["faulty"])
        if row.get("state") in ("refused", "damaged"):
            yield _gap("refused", f"{row['name']}: {row['state']}: {row.get('why') or ''}", file=row["name"])


def _notes(notes: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    for row in notes:
        if row.get("certainty") == "assumed":
            yield _gap("assumed", f"{row['about']}: {row['text']}")
