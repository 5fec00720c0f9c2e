"""From made files to the tables, through the real parsers, the collapse and the clock solver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spark_jobs.clocks import estimate as clocks
from spark_jobs.clocks import pairs as clock_pairs
from spark_jobs.parse import detect
from spark_jobs.parse.almanac import almanac
from spark_jobs.parse.collapse import per_node
from spark_jobs.parse.context import Context
from spark_jobs.parse.survey import survey
from spark_jobs.schema import MESSAGE_KINDS, Event
from spark_jobs.solve import order, reconstruct
from tests.spark.pairs_judge import observations
from tests.spark.truth.world import Files

_TEXTS = ("pacemaker", "corosync", "syslog")
MODIFIED = 1_780_315_200_000_000 + 3_600_000_000


def events(files: Files, zones: Mapping[str, str] | None = None, modified: int = MODIFIED) -> list[Event]:
    """All rows, as ingest would have them."""
    kinds = {name: detect.detect(name, lines[:50]) for name, lines in files.items() if lines}
    texts = [survey(name, files[name]) for name, kind in kinds.items() if kind in _TEXTS]
    found = almanac(texts, zones=dict(zones or {"*": "UTC"}), modified=dict.fromkeys(files, modified), now=None)
    rows: list[Event] = []
    for name, kind in kinds.items():
        assert kind is not None, name
        rows += detect.PARSERS[kind](name, files[name], Context(cluster="made", almanac=found))
    return rows


def facts(rows: Iterable[Event], reference: str | None = "node3") -> list[Event]:
    """Collapsed, on the clock of `reference`."""
    kept = per_node(row for row in rows if row["kind"] not in MESSAGE_KINDS and row.get("source") != "client")
    links = clock_pairs.links(kept)
    known = {row.get("node") for row in kept}
    solved = clocks.solve(observations(kept, links), kept, reference if reference in known else None)
    return list(order.ordered(kept, solved, links).events)


def tables(files: Files, outages: Iterable[Mapping[str, Any]] = (), **options: Any) -> dict[str, list[dict[str, Any]]]:
    return reconstruct.tables(facts(events(files, **options)), outages, "made")
