"""`failover-report report`: from logs to the finished documents.  Shell: the pipeline and the report do the work."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from spark_jobs.cli import common, engines, output, values
from spark_jobs.cli.documents import OVERVIEW, Document, load
from spark_jobs.cli.errors import OK
from spark_jobs.data import Row
from spark_jobs.engine.base import Engine
from spark_jobs.progress import Line, Quiet
from spark_jobs.report.units import clock, date, duration
from spark_jobs.report.words import STAYED

STEP: Final = "report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_reading(parser)
    common.add_output(parser)
    add = parser.add_argument_group("which").add_argument
    add("--incident", type=values.number, metavar="N", help="documents of this one only")
    add("--redo", action="store_true", help="compute everything again")
    engines.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    common.check_inputs(options.inputs)
    out = common.folder(options.output)
    failures, written = _made(options, out)
    overview = load(out / OVERVIEW)
    for row in failures:
        print(f"failover-report: not computed: {row.get('text')}", file=sys.stderr)
    if options.json:
        shown = {"incidents": overview.rows("incidents"), "messages": overview.row("messages"),
                 "failed": failures, "files": [str(path) for path in written]}  # fmt: skip
        output.show([output.as_json(shown)])
    else:
        output.show(told(overview, written))
    return OK


def _made(options: argparse.Namespace, out: Path) -> tuple[list[Row], list[Path]]:
    """Prints what could not be computed, and the files."""
    with common.progress(options.progress) as progress:
        progress.step(f"start {engines.chosen(options)}")
        with engines.reading(options) as (reader, then):
            return _computed(reader, then, options, out, progress)


def _computed(
    reader: Engine, then: Callable[[], Engine], options: argparse.Namespace, out: Path, progress: Line | Quiet
) -> tuple[list[Row], list[Path]]:
    from spark_jobs import pipeline  # not before it is known that the engine's packages are here
    from spark_jobs.report import files
    from spark_jobs.workspace import alone

    workspace = common.workspace(options, reader)
    progress.expect((*pipeline.STEPS, STEP))
    with alone(workspace.place):
        failures = pipeline.run(reader, workspace, options.inputs, common.settings(options), progress, then)
        progress.step(STEP)
        return list(failures), files.write(then(), workspace, out, options.format, options.incident)


# ---- what is printed ------------------------------------------------------------------------------------------------

HEADS: Final = ("#", "begin (UTC)", "type", "primary", "back after", "lost", "dual")


def told(overview: Document, written: Sequence[Path]) -> list[str]:
    """A table of the incidents, the messages of them all, where to look."""
    rows = overview.rows("incidents")
    removed = (overview.row("ingest") or {}).get("removed") or []
    none = ["no incidents in what is kept", *removed] if removed else ["no incidents"]
    lines = output.table(HEADS, [_line(row) for row in rows], ("#", "back after", "lost")) if rows else none
    total = (overview.row("messages") or {}).get("total")
    lines += ["", *output.wrapped(messages_told(total))]
    lines += output.wrapped(ingested(overview.row("ingest") or {}))
    best = next((path for path in written if path.suffix == ".html"), None)
    return [*lines, f"see {best}" if best else f"{len(written)} files in {overview.path.parent}"]


def _line(row: Row) -> Sequence[str]:
    old, new = row["old_primary"] or output.UNKNOWN, row["new_primary"]
    back = "" if row["type"] in STAYED else duration(row["total_us"])
    return (
        *(str(row["number"]), f"{date(row['begin'])} {clock(row['begin'], 0)}", str(row["type"])),
        *(f"{old} → {new}" if new else str(old), back),
        *(output.UNKNOWN if row["lost"] is None else str(row["lost"]), str(row["dual"] or "")),
    )


def messages_told(total: Any) -> str:
    if not isinstance(total, dict) or not total:
        return "messages: no client's log was read"
    found = [f"{total.get('attempts', 0)} sent", f"{total.get('confirmed', 0)} confirmed"]
    names = ("lost", "unaccounted", "explained", "unexpected", "duplicated", "recovered")
    found += [f"{total[name]} {name}" for name in names if total.get(name) or (name == "lost" and name in total)]
    return f"messages: {', '.join(found)}"


def ingested(row: Row) -> str:
    """What was read, and what could not be."""
    faults, refused = row.get("faults") or (), row.get("refused") or ()
    parts = [f"{row.get(name, 0)} {name}" for name in ("files", "lines", "events")]
    parts += [f"{row['unknown']} lines of other things"] if row.get("unknown") else []
    parts += [f"{len(faults)} damaged lines"] if faults else []
    parts += [f"{len(refused)} files not read"] if refused else []
    return f"read: {', '.join(parts)}"
