"""One incident as one flat row of the table `fleet`, from its document (pure).

A time is three columns: `NAME_us`, and the bounds `NAME_lo_us` and `NAME_hi_us` between which it is for certain.  All
three are NULL if nothing is known; only `NAME_lo_us` is given if it had not ended when the logs did (censored: it took
so long at least); only `NAME_us` is given if the clocks are unknown.  In addition to the phases:

    service          from the first sign of death until the new primary served new connections
    to_redundancy    from the first sign of death until all backups were ready again
    clients          from when the first client stood still until the last one went on
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from spark_jobs.report.sums import COUNTED
from spark_jobs.report.units import UNKNOWN
from spark_jobs.solve.causes import NEEDS_PRIMARY
from spark_jobs.solve.phases import NAMES as PHASES

Row = dict[str, Any]
Given = Mapping[str, Any]
METRICS: Final = (*PHASES, "service", "to_redundancy", "clients")
SUMS: Final = tuple(name for name in COUNTED if name not in ("messages", "resends", "anonymous"))
_TIMES: Final = tuple(f"{name}_{part}" for name in METRICS for part in ("us", "lo_us", "hi_us"))
_MARGINS: Final = ("margin_ms", "margin_lo_ms", "margin_hi_ms")
COLUMNS: Final = {
    **dict.fromkeys(("cluster", "incident", "type", "old_primary", "new_primary", "dual", "version"), "string"),
    **dict.fromkeys(("begin", "end", "observed", "known", "any_down", "all_down", "client_us"), "bigint"),
    **dict.fromkeys(("planned", "failover"), "boolean"),
    **dict.fromkeys(_TIMES, "bigint"),
    **dict.fromkeys(_MARGINS, "double"),
    **dict.fromkeys(SUMS, "bigint"),
}
"""Column -> type in words of Spark's SQL.  `observed`: when the logs ended, us; `known`: how much its document says."""


class NoDocument(ValueError):
    """It is not the document of an incident."""


def record(document: Given) -> Row:
    """Needs `incident`; of `phases`, `dual`, `outage_union`, `messages`, `observed` and `versions` what is there.

    Raises NoDocument."""
    incident = document.get("incident")
    if not isinstance(incident, dict) or not incident.get("incident") or not isinstance(incident.get("begin"), int):
        raise NoDocument("no incident with a name and a begin in it, wanted what `failover-report report` writes")
    phases = {row["phase"]: row for row in document.get("phases") or ()}
    fault = phases.get("fault", {})
    if incident.get("type") == "power-loss" and fault.get("begin") is not None:  # all were down from then on
        phases["fault"] = fault | {f"end{part}": fault.get(f"begin{part}") for part in ("", "_lo", "_hi")}
    union = document.get("outage_union") or {}
    names = ("cluster", "incident", "type", "old_primary", "new_primary", "dual", "begin", "end", "planned", "failover")
    row: Row = dict.fromkeys(COLUMNS) | {name: incident.get(name) for name in names}
    row |= {name: union.get(name) for name in ("any_down", "all_down", "client_us")}
    row |= {"observed": _observed(document), "version": _version(document), **_margin(document.get("dual") or ())}
    for name in PHASES:
        row |= _time(name, *_phase(phases.get(name, {})))
    service = _service(incident, phases, row["observed"])
    row |= _time("service", *service) | _time("to_redundancy", *_to_redundancy(phases, service))
    row |= _time("clients", *_clients(phases, union))
    row |= _messages(document.get("messages") or {})
    return row | {"known": sum(value is not None for value in row.values())}


def merged(rows: Iterable[Row]) -> list[Row]:
    """One row for each incident, by time: that which was seen for longer; if equally long, that which knows more."""
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["cluster"] or "", row["incident"])
        if key not in best or _rank(row) > _rank(best[key]):
            best[key] = row
    return sorted(best.values(), key=lambda row: (row["begin"], row["cluster"] or "", row["incident"]))


def _rank(row: Row) -> tuple[int, int, str]:
    return row["observed"] or 0, row["known"] or 0, json.dumps(row, sort_keys=True)


# ---- parts ----------------------------------------------------------------------------------------------------------

Times = tuple[int | None, int | None, int | None]
"""(lo, est, hi)"""
_NOTHING: Final[Times] = (None, None, None)


def _time(name: str, low: int | None, estimate: int | None, high: int | None) -> Row:
    return {f"{name}_lo_us": low, f"{name}_us": estimate, f"{name}_hi_us": high}


def _phase(row: Given) -> Times:
    if row.get("censored"):
        return row.get("duration_lo_us"), None, None
    if not row.get("known"):
        return _NOTHING
    return row.get("duration_lo_us"), row.get("duration_us"), row.get("duration_hi_us")


def _service(incident: Given, phases: Mapping[str, Given], observed: int | None) -> Times:
    fault, recovering = phases.get("fault", {}), phases.get("recovering", {})
    if fault.get("end") is None or incident.get("type") not in NEEDS_PRIMARY:
        return _NOTHING
    if recovering.get("censored"):
        return _since(fault, recovering)
    ends = [phases[name] for name in ("promotion", "recovering", "path") if phases.get(name, {}).get("end") is not None]
    if incident.get("failover") and ends:
        return _span(fault, max(ends, key=lambda row: int(row["end"])))
    awaited = incident.get("end") is None and (incident.get("old_primary") or incident.get("failover"))
    if awaited and observed is not None and fault.get("end_hi") is not None:
        return max(0, observed - fault["end_hi"]), None, None
    return _NOTHING


def _to_redundancy(phases: Mapping[str, Given], service: Times) -> Times:
    fault, redundancy = phases.get("fault", {}), phases.get("redundancy", {})
    if fault.get("end") is None:
        return _NOTHING
    if service[1] is None and service[0] is not None:
        return service  # without a primary nothing is redundant
    if redundancy.get("censored"):
        return _since(fault, redundancy)
    return _span(fault, redundancy) if redundancy.get("end") is not None else _NOTHING


def _clients(phases: Mapping[str, Given], union: Given) -> Times:
    begin, end = union.get("ts_begin"), union.get("ts_end")
    if begin is None or end is None:
        return _NOTHING
    length = end - begin
    return (length, None, None) if phases.get("all_clients", {}).get("censored") else (length, length, length)


def _span(fault: Given, last: Given) -> Times:
    """From the end of the one to the end of the other."""
    bounds = (fault.get("end_lo"), fault.get("end_hi"), last.get("end_lo"), last.get("end_hi"))
    length = last["end"] - fault["end"]
    if None in bounds or last["end_hi"] - fault["end_lo"] > UNKNOWN:
        return None, length, None
    return max(0, last["end_lo"] - fault["end_hi"]), length, last["end_hi"] - fault["end_lo"]


def _since(fault: Given, row: Given) -> Times:
    """From the end of the one, through what never ended."""
    if row.get("begin_lo") is None or fault.get("end_hi") is None:
        return row.get("duration_lo_us"), None, None
    return max(0, row["begin_lo"] - fault["end_hi"]) + int(row.get("duration_lo_us") or 0), None, None


def _margin(pairs: Iterable[Given]) -> Row:
    """Of the pair with the narrowest one."""
    known = [pair for pair in pairs if pair.get("margin_ms") is not None]
    least = min(known, key=lambda pair: (pair["margin_ms"], str(pair)), default={})
    return {name: least.get(name) for name in _MARGINS}


def _messages(messages: Given) -> Row:
    total = messages.get("total") or {}
    return {name: total.get(name) for name in SUMS}


def _version(document: Given) -> str | None:
    """Several while a cluster is being upgraded."""
    return "+".join(document.get("versions") or ()) or None


def _observed(document: Given) -> int | None:
    """Without `observed` the greatest time that the document has."""
    told = (document.get("observed") or {}).get("end")
    if told is not None:
        return int(told)
    times = [row.get("ts_est") for row in document.get("events") or ()]
    times += [row.get("ts_end") for row in document.get("outages") or ()]
    times += [row.get("end") for row in document.get("phases") or ()] + [document["incident"].get("end")]
    return max((time for time in times if isinstance(time, int) and time < UNKNOWN), default=None)
