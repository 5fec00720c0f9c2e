"""The documents of a report: one for each incident, and one over all of them (as `report.json` has it).

Only small tables are read.  A document holds rows as the tables have them, in an order that depends on nothing but
their content, so equal facts give equal documents.  Times are us UTC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_jobs.clocks.segments import of_moment
from spark_jobs.engine.base import Engine
from spark_jobs.report import facts, headline, sums
from spark_jobs.report.tables import Row, Tables
from spark_jobs.workspace import Workspace

FORMAT: Final = "failover-report 1.0"
OUTAGES_SHOWN: Final = 1000
NEAR: Final = 1_000_000
"""us around an incident in which an outage is its own, as `solve.incidents` has it."""
Document = dict[str, Any]


@dataclass
class _All:
    """All small tables, grouped by (cluster, incident) or by cluster."""

    incidents: list[Row]
    by_incident: dict[str, dict[tuple[str, str], list[Row]]] = field(default_factory=dict)
    by_cluster: dict[str, dict[str, list[Row]]] = field(default_factory=dict)

    def of(self, table: str, incident: Row) -> list[Row]:
        return self.by_incident[table].get((incident["cluster"], incident["incident"]), [])

    def about(self, table: str, cluster: str) -> list[Row]:
        return self.by_cluster[table].get(cluster, [])

    def whole(self, table: str) -> list[Row]:
        groups = self.by_cluster[table]
        return [row for cluster in sorted(groups) for row in groups[cluster]]


_OF_INCIDENT: Final = (
    *("phases", "budget", "dual", "near_misses", "hints", "resources"),
    *("message_summary", "outage_union", "incident_outages"),
)
_OF_CLUSTER: Final = ("primary_spans", "outages", "clock_segments", "gaps", "files", "faults", "notes")


class Report:
    """Reads each table once.  Tables that are not there give empty lists.  Errors are the engine's own."""

    def __init__(self, engine: Engine, workspace: Workspace) -> None:
        self._tables = Tables(engine, workspace)
        self._all = _read(self._tables)

    def documents(self) -> Iterator[Document]:
        """By time; numbers from 1."""
        found = self._all
        windows = [(incident, window(incident, found.of("phases", incident))) for incident in found.incidents]
        seen = facts.read(self._tables, [_wanted(found, incident, span) for incident, span in windows])
        for number, (incident, span) in enumerate(windows, 1):
            yield _document(number, incident, span, found, seen)

    def overview(self, made: Iterable[Document]) -> Document:
        """Over all incidents and what is outside of them; `made`: the documents."""
        found = self._all
        clusters = {cluster for groups in found.by_cluster.values() for cluster in groups}
        return {
            "format": FORMAT,
            "clusters": sorted(clusters | {row["cluster"] for row in found.incidents}),
            "incidents": [headline.short(document) for document in made],
            "messages": _all_messages(found),
            "outages": sums.outages(found.whole("outages"), found.whole("takings")),
            "primary_spans": found.whole("primary_spans"),
            "gaps": found.whole("gaps"),
            "clocks": found.whole("clock_segments"),
            "ingest": sums.ingest(found.whole("files"), found.whole("faults"), found.whole("notes")),
        }


def _all_messages(found: _All) -> Row | None:
    summary = sums.by_queue(found.whole("message_summary"))
    if not summary and not found.whole("takings"):
        return None
    causes = [row for rows in found.by_incident["causes"].values() for row in rows]
    return {"summary": summary, "total": sums.total(summary), "causes": sums.causes(causes)}


def _read(tables: Tables) -> _All:
    found = _All(_sorted(tables.rows("incidents")))
    for name in {*_OF_INCIDENT, *_OF_CLUSTER}:
        rows = tables.rows(name)
        found.by_incident[name] = _grouped(rows, found.incidents)
        found.by_cluster[name] = _by_cluster(rows)
    found.by_cluster["takings"] = _by_cluster(tables.clients())
    found.by_incident["causes"] = _grouped(tables.causes(), found.incidents)
    found.by_incident["verdicts"] = _grouped(tables.verdicts(), found.incidents)
    return found


def _sorted(incidents: Iterable[Row]) -> list[Row]:
    rows = [row | {"cluster": row["cluster"] or ""} for row in incidents]
    return sorted(rows, key=lambda row: (row["begin"], row["cluster"], row["incident"]))


def _grouped(rows: Iterable[Row], incidents: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """`budget` has no cluster: an incident's id is of one cluster anyway."""
    clusters = {row["incident"]: row["cluster"] for row in incidents}
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        incident = row.get("incident") or ""
        groups[row.get("cluster") or clusters.get(incident, ""), incident].append(row)
    return groups


def _by_cluster(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.get("cluster") or ""].append(row)
    return groups


def window(incident: Row, phases: Iterable[Row]) -> tuple[int, int]:
    """(us, us) in which all lies that is told of the incident."""
    moments = [phase[name] for phase in phases for name in ("begin", "end") if phase[name] is not None]
    moments += [incident[name] for name in ("begin", "end") if incident[name] is not None]
    return min(moments), max(moments)


def _wanted(found: _All, incident: Row, span: tuple[int, int]) -> facts.WantedFact:
    cluster = incident["cluster"]
    named = [incident]
    named += [
        row for name in ("phases", "dual", "near_misses", "hints", "resources") for row in found.of(name, incident)
    ]
    named += [*_spans(found, incident, span), *_gaps(found, incident, span)]
    return facts.WantedFact(cluster, *span, tuple(sorted(facts.places(named))))


def _spans(found: _All, incident: Row, span: tuple[int, int]) -> list[Row]:
    """Those that touch the incident."""
    return [
        row
        for row in found.about("primary_spans", incident["cluster"])
        if (row["from_lo"] or row["from_est"]) <= span[1] and (row["to_hi"] is None or row["to_hi"] >= span[0])
    ]


def _gaps(found: _All, incident: Row, span: tuple[int, int]) -> list[Row]:
    """Its own, and those of its cluster that no other incident has and that do not lie elsewhere."""
    own = incident["incident"]
    return [
        row
        for row in found.about("gaps", incident["cluster"])
        if row.get("incident") in (own, None, "")
        # a file that is no log has no facts about any incident
        and row["kind"] != "refused"
        and (row.get("begin") is None or row["begin"] <= span[1])
        and (row.get("end") is None or row["end"] >= span[0])
    ]


def _outages(found: _All, incident: Row, span: tuple[int, int]) -> list[Row]:
    """Those that touch the incident, the longest first."""
    near = [
        row
        for row in found.about("outages", incident["cluster"])
        if row["ts_begin"] <= span[1] + NEAR and row["ts_end"] >= span[0] - NEAR
    ]
    own = {(row["client_id"], row["ts_begin"]) for row in found.of("incident_outages", incident) if row["own"]}
    known = bool(found.by_incident["incident_outages"])
    rows = [row for row in near if (row["client_id"], row["ts_begin"]) in own] if known else near
    return sorted(rows, key=lambda row: (row["ts_begin"] - row["ts_end"], row["client_id"] or "", row["ts_begin"]))


def _union(found: _All, incident: Row) -> Row | None:
    """None without any log of a client; zeros if none of them ran at the time."""
    for row in found.of("outage_union", incident):
        return row
    if not found.about("takings", incident["cluster"]):
        return None
    zeros = dict.fromkeys(("any_down", "all_down", "client_us", "most", "clients"), 0)
    return {"incident": incident["incident"], "cluster": incident["cluster"], **zeros, "ts_begin": None, "ts_end": None}


def _document(number: int, incident: Row, span: tuple[int, int], found: _All, seen: facts.SeenFact) -> Document:
    cluster = incident["cluster"]
    outages = _outages(found, incident, span)
    union = _union(found, incident)
    shown, more = seen.of(_wanted(found, incident, span))
    document: Document = {
        "format": FORMAT,
        "number": number,
        "cluster": cluster,
        "incident": incident,
        "phases": sorted(found.of("phases", incident), key=lambda row: row["number"]),
        "budget": sorted(found.of("budget", incident), key=lambda row: (-row["duration_us"], row["phase"])),
        "primary_spans": _spans(found, incident, span),
        "dual": found.of("dual", incident),
        "near_misses": found.of("near_misses", incident),
        "hints": found.of("hints", incident),
        "resources": found.of("resources", incident),
        "outages": outages[:OUTAGES_SHOWN],
        "outages_more": max(0, len(outages) - OUTAGES_SHOWN),
        "outage_union": union,
        "lane": sums.lane(outages, union["clients"] if union else None),
        "messages": _messages(found, incident),
        "clocks": of_moment(found.about("clock_segments", cluster), span[0]),
        "gaps": _gaps(found, incident, span),
        "events": shown,
        "events_more": more,
        "observed": seen.observed.get(cluster),
        "versions": seen.versions(cluster, span[1]),
        "ingest": sums.ingest(found.about("files", cluster), found.whole("faults"), found.about("notes", cluster)),
        "workspace": "work",
    }
    return document | {"words": headline.sentences(document)}


def _messages(found: _All, incident: Row) -> Row | None:
    """None without any log of a client: then the result is unknown, which differs from none lost."""
    summary = sums.by_queue(found.of("message_summary", incident))
    if not summary and not found.about("takings", incident["cluster"]):
        return None
    verdicts = found.of("verdicts", incident)
    of_all = verdicts[0]["of_all"] if verdicts else 0
    named = [{name: value for name, value in row.items() if name not in ("place", "of_all")} for row in verdicts]
    return {
        "summary": summary,
        "total": sums.total(summary),
        "causes": sums.causes(found.of("causes", incident)),
        "verdicts": named,
        "more": of_all - len(named),
    }
