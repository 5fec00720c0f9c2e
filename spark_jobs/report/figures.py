"""The figures at the top of an incident (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.data import Row
from spark_jobs.report import dual
from spark_jobs.report.headline import NO_CLIENTS, away, is_empty, longest, outage, phase, stood
from spark_jobs.report.units import UNKNOWN, plural, with_error
from spark_jobs.report.words import STAYED
from spark_jobs.solve.phases import UNPROMOTED

GOOD, BAD, DOUBT, NEUTRAL = "good", "bad", "doubt", "neutral"


@dataclass(frozen=True)
class Figure:
    """One of the figures at the top.  `tone`: GOOD, BAD, DOUBT (uncertain) or NEUTRAL."""

    name: str
    value: str
    note: str
    tone: str


def figures(document: Row) -> list[Figure]:
    """The worst first."""
    made = [_service(document), _stood(document), _fate(document), _dual(document), _redundancy(document)]
    return sorted(made, key=lambda figure: figure.tone != BAD)


def _service(document: Row) -> Figure:
    incident, found = document["incident"], outage(document)
    if not incident["failover"] and incident["type"] in STAYED:
        return Figure("Service", "stayed", "the primary was not replaced", GOOD)
    if not incident["failover"] and incident["old_primary"] is None:
        if document["resources"]:
            return _resources(document["resources"])
        return Figure("Service", "unknown", "no log here says which node was the primary", DOUBT)
    if not incident["failover"]:
        return _unrestored(document)
    if found is None:
        return Figure("Service back after", "unknown", phase(document, "fault")["note"] or "no line says it", DOUBT)
    text = with_error(*found)
    since = "last sign of life" if document["incident"]["type"] == "power-loss" else "first sign of death"
    return Figure("Service back after", text, f"from the {since} until it took connections", NEUTRAL)


def _resources(rows: Sequence[Row]) -> Figure:
    """Of a cluster without a known primary."""
    gone = [row for row in rows if row["what"] == "stopped"]
    if gone:
        return Figure("Resources", f"{len(gone)} not seen back", ", ".join(row["resource"] for row in gone), BAD)
    longest = max(rows, key=lambda row: row["down_hi"] or row["down_lo"] or 0)
    return Figure("Resources away up to", away(longest), longest["resource"], NEUTRAL)


def _unrestored(document: Row) -> Figure:
    """Clients that go on have found a primary, no matter who logged it."""
    ends = [outage["censored"] for outage in document["outages"]]
    if ends and not any(ends):
        return Figure("Service", "clients went on", UNPROMOTED, DOUBT)
    return Figure("Service", "not seen back", UNPROMOTED, BAD)


def _stood(document: Row) -> Figure:
    union, worst = document["outage_union"], longest(document)
    if union is None and worst is None:
        return Figure("Clients", "unknown", NO_CLIENTS, DOUBT)
    if worst is None:
        count = (union or {}).get("clients")
        note = f"{plural(count, 'client')} wrote logs" if count else "none ran at the time"
        return Figure("Clients", "none stood still", note, GOOD if count else NEUTRAL)
    count = f"{(union or {}).get('most') or len(document['outages'])} of {document['lane']['clients']} at once"
    if worst["censored"]:
        return Figure("Clients stood", "never back", f"{worst['client_id']}; {count}", BAD)
    late = worst["ts_end"] - worst["ts_begin"] > 2 * (document["incident"]["total_us"] or UNKNOWN)
    why = "; the service was back before: a client tries again by its own clock" if late else ""
    return Figure("Clients stood up to", stood(worst), f"{worst['client_id']}; {count}{why}", NEUTRAL)


def _fate(document: Row) -> Figure:
    total = (document["messages"] or {}).get("total")
    return fate_figure(total)


def fate_figure(total: Row | None) -> Figure:
    if total is None:
        return Figure("Messages lost", "unknown", NO_CLIENTS, DOUBT)
    if is_empty(total):
        return Figure("Messages lost", "none", "none was sent", NEUTRAL)
    notes = [f"{total.get(name) or 0} {name}" for name in ("unaccounted", "duplicated", "recovered")]
    lost, unlogged = total.get("lost") or 0, total.get("unlogged") or 0
    findings = (total.get("unmarked") or 0) + (total.get("unexpected") or 0) - unlogged
    tone = BAD if lost or findings else DOUBT if total.get("unaccounted") else GOOD
    return Figure("Messages lost", plural(lost, "message") if lost else "none", ", ".join(notes), tone)


def _dual(document: Row) -> Figure:
    row, incident = dual.worst(document), document["incident"]
    if row is not None:
        text, margin = dual.WORDS[row["verdict"]], dual.signed_margin(row)
        return Figure("Two primaries", text, f"margin {margin}", dual.TONES[row["verdict"]])
    if incident["failover"]:
        return Figure("Two primaries", "unknown", "only one primary is known of", DOUBT)
    if incident["old_primary"] is None and incident["type"] not in STAYED:
        return Figure("Two primaries", "unknown", "no log here knows of a primary", DOUBT)
    if incident["type"] not in STAYED and incident["unknown"]:
        return Figure("Two primaries", "unknown", UNPROMOTED, DOUBT)
    return Figure("Two primaries", "no", UNPROMOTED, GOOD)


def _redundancy(document: Row) -> Figure:
    row = phase(document, "redundancy")
    if row["known"]:
        text = with_error(row["duration_us"], row["duration_lo_us"], row["duration_hi_us"])
        return Figure("Redundancy back after", text, row["note"] or "from the promotion", NEUTRAL)
    incident = document["incident"]
    if not incident["failover"] and incident["old_primary"] is None and incident["type"] not in STAYED:
        return Figure("Redundancy", "unknown", "no log here knows of a primary", DOUBT)
    if not incident["failover"]:
        return Figure("Redundancy", "no change seen", row["note"], NEUTRAL)
    return Figure("Redundancy", "not seen back", row["note"], DOUBT)
