"""Workspaces for tests of the report: the tables of a hand-made story, and of the real lab's logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.clocks import estimate as clocks
from spark_jobs.clocks import pairs as clock_pairs
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.parse.collapse import per_node
from spark_jobs.report import document
from spark_jobs.schema import COLUMNS, Event
from spark_jobs.solve import order, reconstruct
from spark_jobs.workspace import Workspace
from tests.spark.messages_judge import Summary
from tests.spark.pairs_judge import observations
from tests.spark.parse_lab import lab_events
from tests.spark.truth import reading
from tests.spark.truth.story import Story

Row = dict[str, Any]
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_SILVER = {column.name: column.type for column in COLUMNS} | dict.fromkeys(("ts_est", "ts_lo", "ts_hi"), "bigint")
_SUMS = dict.fromkeys(("messages", *Summary.__dataclass_fields__), "bigint")
OTHERS: dict[str, dict[str, str]] = {
    "events": _SILVER,
    "outages": {"cluster": "string", "client_id": "string", "ts_begin": "bigint", "ts_end": "bigint"}
    | {"why": "string", "censored": "boolean"},
    "outage_union": {"incident": "string", "cluster": "string"}
    | dict.fromkeys(("any_down", "all_down", "client_us", "most", "clients", "ts_begin", "ts_end"), "bigint"),
    "takings": {"cluster": "string", "client_id": "string"},
    "message_summary": {"incident": "string", "cluster": "string", "queue": "string"} | _SUMS,
    "message_verdicts": dict.fromkeys(("incident", "cluster", "producer", "verdict", "cause", "queue"), "string")
    | dict.fromkeys(("pub", "missing", "duplicates", "recovered", "attempts", "resends", "confirms"), "bigint")
    | dict.fromkeys(("refusals", "delivers", "acks", "sent", "confirmed", "delivered"), "bigint"),
    "clock_segments": {"cluster": "string", "node": "string", "segment": "int", "t0": "bigint", "t1": "bigint"}
    | {"offset_us": "bigint", "drift_ppm": "double", "err_us": "bigint", "evidence": "map<string,string>"}
    | {"notes": "string", "band": "string", "max_drift_ppm": "double"},
    "gaps": dict.fromkeys(("cluster", "incident", "node", "proc", "file", "kind", "text"), "string")
    | dict.fromkeys(("line_no", "begin", "end", "count"), "bigint")
    | {"evidence": "array<string>"},
    "files": dict.fromkeys(("name", "input", "cluster", "kind", "state", "why"), "string")
    | dict.fromkeys(("octets", "lines", "events", "unknown", "torn", "faulty", "continued", "dropped"), "bigint")
    | dict.fromkeys(("undated", "covered", "first_ts", "last_ts"), "bigint"),
    "faults": {"file": "string", "line_no": "bigint", "value": "string", "wanted": "string"},
    "notes": dict.fromkeys(("cluster", "about", "text", "certainty"), "string"),
}


def solved(rows: Iterable[Event], reference: str | None = "node3") -> tuple[list[Event], list[Row]]:
    """(facts on one axis, clock_segments)"""
    kept = per_node(row for row in rows if row.get("source") != "client")
    links = clock_pairs.links(kept)
    known = {row.get("node") for row in kept}
    found = clocks.solve(observations(kept, links), kept, reference if reference in known else None)
    return list(order.ordered(kept, found, links).events), found.rows()


def story_tables(story: Story) -> dict[str, list[Row]]:
    facts, segments = solved(reading.events(story.files, **story.options))
    outages = story.client_rows()
    made = reconstruct.tables(facts, outages, "made")
    made["events"] = [row | {"cluster": "made"} for row in facts]
    made["clock_segments"] = [row | {"cluster": "made"} for row in segments]
    if outages:
        made |= _clients(story, made["incidents"], outages)
    return made


def _clients(story: Story, incidents: list[Row], outages: list[Row]) -> dict[str, list[Row]]:
    end = story.world.start + 600_000_000
    rows = [
        {
            "cluster": "made",
            "client_id": row["client"],
            "ts_begin": row["begin"],
            "ts_end": row["end"] or end,
            "why": "confirm",
            "censored": row["end"] is None,
        }
        for row in outages
    ]
    ends = [row["ts_end"] for row in rows]
    union = {
        "any_down": max(ends) - min(row["ts_begin"] for row in rows),
        "all_down": max(0, min(ends) - max(row["ts_begin"] for row in rows)),
        "client_us": sum(row["ts_end"] - row["ts_begin"] for row in rows),
        "most": len(rows),
        "clients": len(rows),
    }
    return {
        "outages": rows,
        "outage_union": [{"cluster": "made", "incident": row["incident"], **union} for row in incidents],
        "takings": [{"cluster": "made", "client_id": row["client_id"]} for row in rows],
    }


def lab_tables() -> dict[str, list[Row]]:
    facts, segments = solved(lab_events(), None)
    made = reconstruct.tables(facts, (), "lab")
    made["events"] = [row | {"cluster": "lab"} for row in facts]
    made["clock_segments"] = [row | {"cluster": "lab"} for row in segments]
    return made


def workspace(tables: Mapping[str, Iterable[Mapping[str, Any]]], place: Path) -> Workspace:
    """The tables as Parquet."""
    found = Workspace(str(place))
    for name, rows in tables.items():
        columns = OTHERS.get(name) or reconstruct.TABLES[name]
        _write(Path(found.path(name)), columns, rows)
    return found


def _write(place: Path, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> None:
    listed = list(rows)
    place.mkdir(parents=True, exist_ok=True)
    arrays = {name: pa.array([_plain(row.get(name)) for row in listed], _TYPES[kind]) for name, kind in columns.items()}
    pq.write_table(pa.table(arrays), place / "part-0.parquet")


def _plain(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def documents(tables: Mapping[str, Iterable[Mapping[str, Any]]], place: Path) -> tuple[Row, list[Row]]:
    """(overview, documents)"""
    engine = DuckEngine(threads=1)
    try:
        made = workspace(tables, place)
        report = document.Report(engine, made)
        found = list(report.documents())
        return report.overview(found), found
    finally:
        engine.close()
