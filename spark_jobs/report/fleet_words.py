"""What the fleet document says, as sentences and tables of text: the same for every form of the page (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from spark_jobs.data import Row
from spark_jobs.report import words
from spark_jobs.report.elements import Table
from spark_jobs.report.units import date, duration, moment, plural

Fleet = Mapping[str, Any]
METRICS: Final = {
    **words.PHASES,
    "service": ("Service", "the first sign of death until the new primary served new connections"),
    "to_redundancy": ("To redundancy", "the first sign of death until every backup was ready again"),
    "clients": ("Clients", "the first client stood still until the last one went on"),
    "margin": ("Margin", "the old primary's end until the new one's begin"),
    "lost": ("Lost", "messages in one incident"),
    "unmarked": ("Unmarked", "duplicates in one incident that nothing marks"),
}
"""metric -> (name, from where to where)"""
GROUPS: Final = {**words.TYPES, "unplanned": "unplanned"}
CLUSTERS_SHOWN, INCIDENTS_SHOWN = 200, 200


def sentences(fleet: Fleet) -> list[str]:
    """The most important first."""
    if not fleet["count"]:
        return ["No incident."]
    parts = [_what(fleet), _repair(fleet), _never(fleet), _dual(fleet), _messages(fleet), *_changes(fleet)]
    return [part for part in parts if part]


def tables(fleet: Fleet) -> dict[str, Table]:
    """Those that have anything to say, by their titles."""
    found = {
        "Clusters": _clusters(fleet), "How long it takes": _durations(fleet), "By kind of incident": _types(fleet),
        "What has changed": _compared(fleet), "With what never ended": _survival(fleet),
        "Margin against two primaries": _months(fleet), "Incidents": _incidents(fleet), "Not read": _refused(fleet),
    }  # fmt: skip
    return {title: table for title, table in found.items() if table.rows}


# ---- sentences ------------------------------------------------------------------------------------------------------


def _what(fleet: Fleet) -> str:
    kinds = [f"{number} {GROUPS.get(name, name)}" for name, number in fleet["types"].items()]
    period = fleet["period"]
    return (
        f"{plural(fleet['count'], 'incident')} of {plural(fleet['clusters'], 'cluster')} from {date(period['begin'])} "
        f"to {date(period['end'])}: {', '.join(kinds)}."
    )


def _repair(fleet: Fleet) -> str:
    row = _duration(fleet, "service")
    if row is None or not row["n"]:
        return ""
    text = f"The service was back after {duration(row['mean_us'])} on average (n = {row['n']}), "
    text += f"in half of the cases within {_spread(row, 'median')}, in 95 % within {_spread(row, 'p95')}"
    redundancy = _duration(fleet, "to_redundancy")
    if redundancy is not None and redundancy["n"]:
        text += f"; redundancy within {_spread(redundancy, 'median')} in half of them"
    return f"{text}."


def _never(fleet: Fleet) -> str:
    row = _of(fleet["survival"], "service")
    if row is None or not row["never"]:
        return ""
    return f"{row['never']} of {row['n']} had not recovered when the logs ended."


def _dual(fleet: Fleet) -> str:
    margins = fleet["margins"]
    if not margins["n"]:
        return ""
    verdicts = [f"certain {margins['certain']}", f"possible {margins['possible']}", f"excluded {margins['excluded']}"]
    text = f"Two primaries at once: {', '.join(verdicts)}."
    if margins["known"]:
        text += f" {_margin(margins)}"
    return text


def _margin(margins: Row) -> str:
    near, least = margins["near"], margins["least_ms"]
    where = f"{margins['least_cluster'] or 'no name'}, {margins['least_incident']}"
    told = f"by {duration(round(least * 1000))}" if least >= 0 else f"not at all: {duration(round(-least * 1000))} late"
    text = f"The end of the old primary beat the promotion by less than {margins['near_ms']:g} ms in {near} of "
    text += f"{plural(margins['known'], 'fail-over')}, at worst {told} ({where})"
    if margins["trend"] in ("growing", "shrinking"):
        text += f"; the margin is {margins['trend']} (p = {_p(margins['trend_p'])})"
    return f"{text}."


def _messages(fleet: Fleet) -> str:
    sums = fleet["messages"]
    if not sums["incidents"]:
        return "Nothing is known about messages: no log of a client was read."
    parts = [f"{sums['lost']} lost", f"{sums['unaccounted']} unaccounted", f"{sums['unmarked']} unmarked duplicates"]
    text = f"Of {sums['confirmed']} confirmed messages: {', '.join(parts)}, {sums['recovered']} recovered"
    silent = f" ({plural(sums['silent'], 'incident')} without a client's log)" if sums["silent"] else ""
    return f"{text}{silent}."


def _changes(fleet: Fleet) -> list[str]:
    found = []
    for row in fleet["comparisons"]:
        if row["verdict"] in ("worse", "better"):
            name = METRICS[row["metric"]][0]
            change = f"{_value(row['metric'], row['median_before'])} to {_value(row['metric'], row['median_after'])}"
            p = f"p = {_p(row['p_corrected'])}, n = {row['n_before']} and {row['n_after']}"
            found.append(f"{name} became {row['verdict']} from {row['before']} to {row['after']}: {change} ({p}).")
    return found


# ---- tables ---------------------------------------------------------------------------------------------------------


def _clusters(fleet: Fleet) -> Table:
    head = ("cluster", "inc.", "fail-overs", "dual", "lost", "unacc.", "unmarked", "never", "MTTR", "longest", "down")
    rows = [
        [
            *(row["cluster"] or "(no name)", str(row["incidents"]), str(row["failovers"])),
            _pair(row["dual_certain"], row["dual_possible"]),
            *(_count(row[name]) for name in ("lost", "unaccounted", "unmarked", "never_recovered")),
            *(_time(row[name]) for name in ("mean_service_us", "longest_service_us", "any_down_us")),
        ]
        for row in fleet["by_cluster"][:CLUSTERS_SHOWN]
    ]
    note = "Worst first. dual: certain + possible; never: not recovered when the logs ended; down: any client, in sum."
    return Table(note + _left_out(fleet["by_cluster"], CLUSTERS_SHOWN), head, rows, head[1:])


def _durations(fleet: Fleet) -> Table:
    rows = [row for row in fleet["durations"] if row["group"] == "unplanned" and (row["n"] or row["censored"])]
    note = "Unplanned fail-overs. In brackets: 95 % of what chance and the clocks leave open. "
    note += "≥: so few that the true one may well be beyond all that were seen."
    head = ("what", "n", "never", "median", "p95", "p99", "most")
    return Table(note, head, [_row(METRICS[row["metric"]][0], row) for row in rows], head[1:])


def _types(fleet: Fleet) -> Table:
    wanted = ("promotion", "service", "to_redundancy")
    rows = [
        row for row in fleet["durations"]
        if row["group"] != "unplanned" and row["metric"] in wanted and (row["n"] or row["censored"])
    ]  # fmt: skip
    head = ("kind", "what", "n", "never", "median", "p95", "p99", "most")
    made = [[GROUPS.get(row["group"], row["group"]), *_row(METRICS[row["metric"]][0], row)] for row in rows]
    return Table("", head, made, head[2:])


def _row(name: str, row: Row) -> list[str]:
    quantiles = [_mark(row, word) + _spread(row, word) for word in ("median", "p95", "p99")]
    return [name, str(row["n"]), str(row["censored"]), *(quantiles if row["n"] else ["–"] * 3), _time(row["most_us"])]


def _mark(row: Row, word: str) -> str:
    return "" if row[f"{word}_firm"] or word == "median" else "≥ "


def _compared(fleet: Fleet) -> Table:
    rows = [
        [
            *(METRICS[row["metric"]][0], f"{row['before']} → {row['after']}", row["verdict"]),
            f"{row['n_before']}, {row['n_after']}",
            *(_value(row["metric"], row[f"median_{side}"]) for side in ("before", "after")),
            _p(row["p_corrected"]),
        ]
        for row in fleet["comparisons"]
    ]
    settings = fleet["settings"]
    note = (
        "Permutation within each cluster and kind of incident, two-sided; p after Holm's correction over all measures. "
    )
    note += (
        f"Called different at p ≤ {settings['alpha']:g}; not tested with fewer than {settings['smallest']} on a side."
    )
    head = ("what", "pair", "verdict", "n", "median before", "after", "p")
    return Table(note, head, rows, head[3:])


def _survival(fleet: Fleet) -> Table:
    rows = [
        [
            *(GROUPS.get(row["group"], row["group"]), METRICS[row["metric"]][0], str(row["n"]), str(row["never"])),
            *(_time(row[name]) if row[name] is not None else "not reached" for name in ("median_us", "p95_us")),
        ]
        for row in fleet["survival"] if row["never"]
    ]  # fmt: skip
    note = "Kaplan and Meier's estimate: what had not ended when the logs did counts as long as it was seen."
    head = ("kind", "what", "n", "never", "half within", "95 % within")
    return Table(note, head, rows, head[2:])


def _months(fleet: Fleet) -> Table:
    margins = fleet["margins"]
    rows = [
        [row["month"], str(row["n"]), _ms(row["least_ms"]), _ms(row["median_ms"]), str(row["near"])]
        for row in margins["months"]
    ]
    trend = f" Trend: {margins['trend']}" + (f", p = {_p(margins['trend_p'])}." if margins["trend_p"] else ".")
    note = f"From the old primary's end to the new one's begin; negative: an overlap.{trend}"
    head = ("month", "fail-overs", "least", "median", f"below {margins['near_ms']:g} ms")
    return Table(note, head, rows, head[1:])


def _incidents(fleet: Fleet) -> Table:
    ordered = sorted(fleet["incidents"], key=_badness)
    rows = [
        [
            *(row["cluster"] or "(no name)", row["incident"], moment(row["begin"], 0)),
            *(GROUPS.get(row["type"], row["type"] or "?"), row["dual"] or "–"),
            _at_least(row, "service"),
            *(_at_least(row, "to_redundancy"), _count(row["lost"]), _count(row["unmarked"])),
        ]
        for row in ordered[:INCIDENTS_SHOWN]
    ]
    head = ("cluster", "incident", "begin", "kind", "dual", "service", "redundancy", "lost", "unmarked")
    return Table("Worst first." + _left_out(ordered, INCIDENTS_SHOWN), head, rows, head[5:])


def _badness(row: Row) -> tuple[Any, ...]:
    duals = ("certain", "possible", "excluded")
    rank = duals.index(row["dual"]) if row["dual"] in duals else len(duals)
    open_ = row["service_us"] is None and row["service_lo_us"] is not None
    length = row["service_us"] or row["service_lo_us"] or 0
    return rank > 0, -(row["lost"] or 0), not open_, rank, -length, row["begin"], row["incident"]


def _refused(fleet: Fleet) -> Table:
    rows = [[row["file"], row["why"]] for row in fleet.get("refused") or ()]
    return Table("", ("file", "why"), rows)


# ---- values ---------------------------------------------------------------------------------------------------------


def _of(rows: Sequence[Row], metric: str, group: str = "unplanned") -> Row | None:
    return next((row for row in rows if (row["group"], row["metric"]) == (group, metric)), None)


def _duration(fleet: Fleet, metric: str) -> Row | None:
    return _of(fleet["durations"], metric)


def _spread(row: Row, word: str) -> str:
    """`172 ms (150 – 210 ms)`"""
    value, low, high = (row[f"{word}{part}"] for part in ("_us", "_lo_us", "_hi_us"))
    return _time(value) if low is None else f"{_time(value)} ({_range(_time(low), _time(high))})"


def _range(low: str, high: str) -> str:
    number, _, unit = low.partition(" ")
    return (
        f"{number}–{high}" if high.endswith(f" {unit}") and low.count(" ") == high.count(" ") == 1 else f"{low}–{high}"
    )


def _time(us: int | None) -> str:
    return "–" if us is None else duration(us)


def _at_least(row: Row, name: str) -> str:
    if row[f"{name}_us"] is None and row[f"{name}_lo_us"] is not None:
        return f"> {duration(row[f'{name}_lo_us'])}"
    return _time(row[f"{name}_us"])


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def _pair(certain: int, possible: int) -> str:
    return f"{certain}+{possible}" if certain or possible else "0"


def _ms(value: float) -> str:
    return duration(round(value * 1000))


def _value(metric: str, value: float | None) -> str:
    if value is None:
        return "–"
    show: dict[str, Callable[[float], str]] = {"lost": "{:g}".format, "unmarked": "{:g}".format, "margin": _ms}
    return show[metric](value) if metric in show else duration(round(value))


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _left_out(rows: Sequence[Any], shown: int) -> str:
    return f" {len(rows) - shown} more are left out here." if len(rows) > shown else ""
