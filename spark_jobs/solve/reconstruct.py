"""All small tables of one cluster from its facts (pure): what the jobs `incidents` to `hints` write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from spark_jobs.data import table
from spark_jobs.schema import Event
from spark_jobs.solve import budget, hints, incidents, near_misses, phases, primaries, resources
from spark_jobs.solve.bounds import Phase
from spark_jobs.solve.incidents import GAP, Incident
from spark_jobs.solve.signs import SECOND, Facts

Row = dict[str, Any]
BEFORE: Final = 5 * SECOND
FOREVER: Final = 1 << 62
Cut = tuple[int, int]
"""[begin, end), us on the common axis."""
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
    made: dict[str, list[Row]] = {name: [] for name in TABLES}
    made |= {"incidents": incidents.rows(found, facts), "primary_spans": primaries.span_rows(spans)}
    for name, rows in (("dual", primaries.duals(spans, facts)), ("near_misses", near_misses.rows(spans, facts))):
        made[name] = [{**row, "incident": _incident(found, row["at"])} for row in rows]
    timeline = {incident.id: phases.find(incident, facts) for incident in found}
    moves = resources.moves(facts)
    for incident, row, cut in zip(found, made["incidents"], cuts(found, timeline), strict=True):
        here, near = timeline[incident.id], [miss for miss in made["near_misses"] if miss["incident"] == incident.id]
        moved = resources.rows(moves, incident.facts(facts))
        back = [each["end"] for each in moved if each["end"] and (not incident.until or each["end"] < incident.until)]
        row["end"] = None if row["end"] is None else max([row["end"], *back])  # not over before what ended is back
        row |= {"total_us": phases.total(here, incident.cause.type == "power-loss")}
        row |= {"ts_begin": cut[0], "ts_end": cut[1]}
        row["dual"] = primaries.worst(pair for pair in made["dual"] if pair["incident"] == incident.id)
        of = {
            "phases": phases.rows(here), "budget": budget.rows(here, incident, facts), "resources": moved,
            "hints": hints.find(incident, facts, here, near, found), "incident_outages": _outages(incident),
        }  # fmt: skip
        for name, rows in of.items():
            made[name] += [{"incident": incident.id, **each} for each in rows]
    return {name: [{"cluster": cluster, **row} for row in rows] for name, rows in made.items()}


def _outages(incident: Incident) -> list[Row]:
    """What never ended has no `ts_end`."""
    times = {"ts_begin": "begin", "ts_end": "end", "client_id": "client"}
    return [
        {name: outage[key] for name, key in times.items()} | {"censored": outage["end"] is None, "own": own}
        for own, of in ((True, incident.outages), (False, incident.others))
        for outage in of
    ]


def _incident(found: Iterable[Incident], at: int) -> str | None:
    """That in which it happened, or which came next; None for what was long before all of them (a bring-up)."""
    inside = [incident.id for incident in found if (incident.since or incident.begin) <= at]
    return inside[-1] if inside else None


def cuts(found: Sequence[Incident], phases: Mapping[str, Sequence[Phase]]) -> list[Cut]:
    """The time that is an incident's own, for what is counted by time: messages and clients' outages.

    It begins BEFORE the earliest moment at which the failure may have happened (a message that was lost with the old
    primary was sent before anybody noticed), and ends with the incident, or with the next one.  Two do not overlap.
    `found`: all of one cluster, by time; `phases`: by incident."""
    begins = [_first(incident, phases[incident.id]) for incident in found]
    for number, (before, incident) in enumerate(pairwise(found), 1):
        over = incident.begin if before.end is None else min(before.end + 1, incident.begin)
        begins[number] = max(begins[number - 1], begins[number], over)
    ends = [FOREVER if incident.end is None else incident.end + 1 for incident in found]
    limits = zip(ends, [*begins[1:], FOREVER], strict=False)
    return [(begin, max(begin, min(limit))) for begin, limit in zip(begins, limits, strict=True)]


def _first(incident: Incident, phases: Sequence[Phase]) -> int:
    """The last sign of life may be hours old: what was sent then has nothing to do with it."""
    bounds = [phase.begin.lo for phase in phases if phase.name == "fault" and phase.begin is not None]
    return max(min([incident.begin, *bounds]), incident.begin - GAP) - BEFORE
