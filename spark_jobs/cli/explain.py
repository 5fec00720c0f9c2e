"""`failover-report explain`: the evidence for one thing: a message's life, a phase's two ends, the hints.  Shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.cli import documents, engines, output
from spark_jobs.cli.documents import OVERVIEW, Document
from spark_jobs.cli.errors import OK, UserError
from spark_jobs.cli.values import number
from spark_jobs.data import Row
from spark_jobs.report.units import clock, duration
from spark_jobs.solve.phases import NAMES as PHASES

if TYPE_CHECKING:
    from spark_jobs.cli.gather import Gathered

THINGS: Final = ("msg", "phase", "hint")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", metavar="PATH", type=Path, help="OUT of a report, or an incident-N.json of it")
    parser.add_argument("thing", choices=THINGS, help="what is asked for")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the message's id, or the phase")
    parser.add_argument("--incident", type=number, metavar="N", help="which one, if PATH is a folder")
    parser.add_argument("--work", metavar="PLACE", help="where the tables are (as the documents say)")
    parser.add_argument("--json", action="store_true", help="for programs")
    engines.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    output.show({"msg": _message, "phase": _phase, "hint": _hints}[options.thing](options))
    return OK


# ---- a message ------------------------------------------------------------------------------------------------------


def _message(options: argparse.Namespace) -> Sequence[str]:
    if not options.name:
        raise UserError("explain msg: which message? expected its id, as p7:123")
    from spark_jobs.cli import gather
    from spark_jobs.workspace import Workspace

    where, cluster = _workspace(options.place, options.incident)
    where = options.work or where
    workspace = Workspace(where)
    with engines.opened(options, where) as engine:
        if not workspace.has(engine, "events_raw"):
            raise UserError(f"{where}: no table events_raw, expected the folder `work` next to a report's documents")
        found = gather.message(engine, workspace, options.name, cluster)
        if not found:
            known = "; ".join(gather.producers(engine, workspace)) or "none"
            raise UserError(f"no line names the message {options.name!r}; producers with their numbers: {known}")
    if options.json:
        return [output.as_json([_as_json(each) for each in found])]
    return [line for each in found for line in life_told(options.name, each)]


def _workspace(place: Path, incident: int | None) -> tuple[str, str | None]:
    """Its path, and the cluster if the query is about one incident."""
    if place.is_dir() and incident is None:
        overview = place / OVERVIEW
        return (documents.load(overview).workspace if overview.exists() else str(place / "work")), None
    document = documents.of_place(place)[0] if not place.is_dir() else documents.one(place, incident)
    return document.workspace, None if document.is_overview else str(document.data.get("cluster") or "")


def life_told(msg_id: str, found: Gathered) -> list[str]:
    """As text: every row with its line, the brokers that held it, the verdict."""
    from spark_jobs.cli import life
    from spark_jobs.messages.survivors import undone

    moments = life.moments(found.rows, found.clocks, found.number)
    gone = undone(row for row in found.samples if row["kind"] == "promoted")
    lines = [f"{msg_id}" + (f" in cluster {found.cluster}" if found.cluster else ""), ""]
    lines += output.table(
        ("time (UTC)", "+-", "who", "what"),
        [(clock(one.est), _error(one.lo, one.hi), life.who(one.event), life.did(one, gone)) for one in moments],
        ("+-",),
    )
    lines += ["", "lines:", *(f"  {place_of(one.event)}" for one in moments), ""]
    lines += _replicated(found, moments)
    return [*lines, *output.wrapped(_verdict(found), 4, "verdict: ")]


def _replicated(found: Gathered, moments: Sequence[Any]) -> list[str]:
    from spark_jobs.cli import life

    samples = life.of_queue(found.samples, moments)
    where = life.position(moments, samples)
    if where is None:
        return ["the brokers' logs do not tell where in their log it was", ""]
    first = f"in the log of {where.primary} (term {where.term}) behind {where.after}, up to {where.upto}:"
    held = [
        f"  {life.held_words(one)}, {clock(one.at)}, {place_of(one.event)}" for one in life.holdings(where, samples)
    ]
    return [first, *(held or ["  no backup wrote how far it was"]), ""]


def _verdict(found: Gathered) -> str:
    from spark_jobs.cli import life

    if found.verdict is not None:
        return life.verdict_words(str(found.verdict["verdict"]), str(found.verdict["cause"] or ""))
    return life.verdict_words("ok", "") if found.judged else "not judged: the report has no table of messages"


def _error(lo: int, hi: int) -> str:
    from spark_jobs.clocks.segments import FOREVER, NEVER

    return output.UNKNOWN if lo <= NEVER or hi >= FOREVER else duration((hi - lo + 1) // 2)


def _as_json(found: Gathered) -> dict[str, Any]:
    from spark_jobs.cli import life

    moments = life.moments(found.rows, found.clocks, found.number)
    samples = life.of_queue(found.samples, moments)
    where = life.position(moments, samples)
    held = life.holdings(where, samples) if where else []
    return {
        "cluster": found.cluster,
        "moments": [life.as_row(one) for one in moments],
        "position": where and {"term": where.term, "node": where.primary, "after": where.after, "upto": where.upto},
        "holdings": [
            {"node": one.node, "role": one.role, "held": one.held, "position": one.position, "ts_est": one.at,
             "place": place_of(one.event)}
            for one in held
        ],
        "verdict": found.verdict or ({"verdict": "ok", "cause": ""} if found.judged else None),
    }  # fmt: skip


# ---- phases and hints -----------------------------------------------------------------------------------------------


def _phase(options: argparse.Namespace) -> Sequence[str]:
    if options.name not in PHASES:
        raise UserError(f"explain phase: {options.name!r} is none, known: {', '.join(PHASES)}")
    document = documents.one(options.place, options.incident)
    row = next((row for row in document.rows("phases") if row.get("phase") == options.name), None)
    if row is None:
        raise UserError(f"{document.path}: no phase {options.name!r} in it")
    return [output.as_json(row)] if options.json else phase_told(row, document)


def phase_told(row: Row, document: Document) -> list[str]:
    limits = row.get("duration_lo_us"), row.get("duration_hi_us")
    between = "" if None in limits else f", between {duration(limits[0])} and {duration(limits[1])}"
    length = f"{duration(row.get('duration_us'))}{between}" if row.get("known") else "not known"
    lines = [f"{row['phase']}: {length}"]
    lines += output.wrapped(str(row["note"]), 2) if row.get("note") else []
    for end in ("begin", "end"):
        if row.get(end) is None:
            continue
        half = _error(row[f"{end}_lo"], row[f"{end}_hi"])
        who = f" on {row[f'{end}_node']}" if row.get(f"{end}_node") else ""
        lines.append(f"{end}  {clock(row[end])} +-{half}  {row.get(f'{end}_what') or ''}{who}")
        if row.get(f"{end}_file"):
            lines += evidence_told([f"{row[f'{end}_file']}:{row[f'{end}_line']}"], document)
    return lines


def _hints(options: argparse.Namespace) -> Sequence[str]:
    document = documents.one(options.place, options.incident)
    rows = [row for row in document.rows("hints") if options.name in (None, row.get("rule"))]
    if options.name and not rows:
        known = ", ".join(sorted({str(row.get("rule")) for row in document.rows("hints")})) or "none"
        raise UserError(f"{document.path}: no hint {options.name!r}, known: {known}")
    if options.json:
        return [output.as_json(rows)]
    if not rows:
        return [f"{document.about}: no hints"]
    return [line for row in rows for line in hint_told(row, document)]


def hint_told(row: Row, document: Document) -> list[str]:
    lines = output.wrapped(f"{row.get('text')} ({row.get('rule')}, {row.get('confidence')})", 2, "")
    return lines + evidence_told([str(place) for place in row.get("evidence") or ()], document)


def evidence_told(places: Iterable[str], document: Document) -> list[str]:
    """Each place with the line that stands there, as far as the document has it."""
    lines = {place_of(event): str(event.get("raw") or _said(event)) for event in document.rows("events")}
    lines = {place: " ".join(line.split()) for place, line in lines.items()}
    return [text for place in places for text in (f"  {place}", *([f"    {lines[place]}"] if place in lines else []))]


def _said(event: Row) -> str:
    """A line of JSON, without what all of them have."""
    told = {name: event[name] for name in _TOLD if event.get(name) is not None}
    return " ".join(f"{name}={value}" for name, value in told.items())


_TOLD: Final = ("node", "kind", "term", "peer", "queue", "first_pos", "last_pos", "old", "new", "result", "reason")


def place_of(event: Row) -> str:
    return f"{event.get('file')}:{event.get('line_no')}"
