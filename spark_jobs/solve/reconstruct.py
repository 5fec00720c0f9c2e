"""All small tables of one cluster from its facts (pure): what the jobs `incidents` to `hints` write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from spark_jobs.data import table
from spark_jobs.schema import Event
from spark_jobs.solve import budget, cuts, hints, incidents, near_misses, phases, primaries, resources
from spark_jobs.solve.signs import Facts

Row = dict[str, Any]
_GIVEN: Final = table(__package__, "tables")
TABLES: Final[dict[str, dict[str, str]]] = {
    name: {column: _GIVEN["types"][type_] for type_, columns in of.items() for column in columns.split()}
    for name, of in _GIVEN["tables"].items()
}
"""Table -> column -> type in words of Spark's SQL; NULL where it is not known.

incidents: `begin` to `end` is what happened, `ts_begin` to `ts_end` the time in which messages and outages are counted
as its own (`cuts`).  incident_outages: `own` ones touch it, others are only near.
"""


def tables(
    events: Iterable[Event], outages: Iterable[Mapping[str, Any]] = (), cluster: str = ""
) -> dict[str, list[Row]]:
    """Rows of each of TABLES, in an order that depends on nothing but the events.

    `events`: facts of one cluster with ts_est, ts_lo, ts_hi (others are ignored), collapsed by `parse.collapse`;
    `outages`: client, begin, end (None if it never came back), us on the common axis.
    """
    facts = Facts.of(events)
    found = incidents.find(facts, outages, cluster)
    spans = primaries.spans(facts)
    dual = [{**row, "incident": _incident(found, row["at"])} for row in primaries.duals(spans, facts, cluster)]
    near = [{**row, "incident": _incident(found, row["at"])} for row in near_misses.rows(spans, facts, cluster)]
    made: dict[str, list[Row]] = {name: [] for name in TABLES}
    made["incidents"] = incidents.rows(found, facts)
    timeline = {incident.id: phases.find(incident, facts) for incident in found}
    cut = cuts.of(found, timeline)
    moves = resources.moves(facts)
    for incident, row, (begin, end) in zip(found, made["incidents"], cut, strict=True):
        here = timeline[incident.id]
        mine = [miss for miss in near if miss["incident"] == incident.id]
        row |= {"total_us": phases.total(here, incident.cause.type == "power-loss"), "ts_begin": begin, "ts_end": end}
        row["dual"] = primaries.worst(pair for pair in dual if pair["incident"] == incident.id)
        made["phases"] += phases.rows(here, incident)
        made["budget"] += budget.rows(here, incident, facts)
        made["hints"] += hints.find(incident, facts, here, mine, found)
        moved = resources.rows(moves, incident.facts(facts), incident.id, cluster)
        back = [each["end"] for each in moved if each["end"] and (not incident.until or each["end"] < incident.until)]
        row["end"] = None if row["end"] is None else max([row["end"], *back])  # not over before what ended is back
        made["resources"] += moved
        made["incident_outages"] += _outages(incident)
    return made | {"primary_spans": primaries.span_rows(spans, cluster), "dual": dual, "near_misses": near}


def _outages(incident: incidents.Incident) -> list[Row]:
    """What never ended has no `ts_end`."""
    return [
        {
            "cluster": incident.cluster,
            "incident": incident.id,
            "client_id": outage["client"],
            "ts_begin": outage["begin"],
            "ts_end": outage["end"],
            "censored": outage["end"] is None,
            "own": own,
        }
        for own, of in ((True, incident.outages), (False, incident.others))
        for outage in of
    ]


def _incident(found: Iterable[incidents.Incident], at: int) -> str | None:
    """That in which it happened, or which came next; None for what was long before all of them (a bring-up)."""
    inside = [incident.id for incident in found if (incident.since or incident.begin) <= at]
    return inside[-1] if inside else None
