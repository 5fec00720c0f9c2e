"""`failover-report explain`: the evidence for one thing: a message's life, a phase's two ends, the hints.  Shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from spark_jobs.cli import documents, engines, output
from spark_jobs.cli.documents import OVERVIEW, Document
from spark_jobs.cli.errors import OK, UserError
from spark_jobs.cli.values import number
from spark_jobs.data import Row
from spark_jobs.report.units import clock, duration
from spark_jobs.solve.phases import NAMES as PHASES

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
    from spark_jobs.cli import gather, life
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
        return [output.as_json([life.as_json(each) for each in found])]
    return [line for each in found for line in life.told(options.name, each)]


def _workspace(place: Path, incident: int | None) -> tuple[str, str | None]:
    """Its path, and the cluster if the query is about one incident."""
    if place.is_dir() and incident is None:
        overview = place / OVERVIEW
        return (documents.load(overview).workspace if overview.exists() else str(place / "work")), None
    document = documents.of_place(place)[0] if not place.is_dir() else documents.one(place, incident)
    return document.workspace, None if document.is_overview else str(document.data.get("cluster") or "")


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
        half = output.half(row[f"{end}_lo"], row[f"{end}_hi"])
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
    lines = {output.place_of(event): str(event.get("raw") or _said(event)) for event in document.rows("events")}
    lines = {place: " ".join(line.split()) for place, line in lines.items()}
    return [text for place in places for text in (f"  {place}", *([f"    {lines[place]}"] if place in lines else []))]


def _said(event: Row) -> str:
    """A line of JSON, without what all of them have."""
    told = {name: event[name] for name in _TOLD if event.get(name) is not None}
    return " ".join(f"{name}={value}" for name, value in told.items())


_TOLD: Final = ("node", "kind", "term", "peer", "queue", "first_pos", "last_pos", "old", "new", "result", "reason")
