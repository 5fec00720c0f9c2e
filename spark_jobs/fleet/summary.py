"""Many incidents of many clusters: durations, their certainty, and what has become worse (pure).

Rows are those of `fleet_record.record`.  The answer is one document that depends on the rows and the settings only, not
on the order of the rows.  Groups: each type of incident, and `unplanned`: the service was away without a request.

    durations     exact quantiles of what ended, with an interval (`quantiles`)
    survival      the same with what never ended (`survival`)
    margins       from the old primary's end to the new one's begin: how close two primaries were to confirming at once
    comparisons   before and after a day, or each version with the one before it (`compare`); `worse` only if the test
                  says so after Holm's correction over all measures; an incident is compared only with those
                  of its own cluster and type
    by_cluster    worst first: certain dual primaries, lost, never recovered, possible dual primaries, time down
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

from spark_jobs.fleet import compare, quantiles, survival
from spark_jobs.fleet.margins import margins
from spark_jobs.fleet.record import METRICS, SUMS, Row, merged
from spark_jobs.solve.causes import NEEDS_PRIMARY

FORMAT: Final = "failover-fleet 1.0"
SHARES: Final = {"median": 0.5, "p95": 0.95, "p99": 0.99}
ALL: Final = "unplanned"
SURVIVED: Final = ("service", "to_redundancy", "clients")
COMPARED: Final = (
    *("detection", "decision", "fencing", "promotion", "recovering", "path"),
    *("service", "to_redundancy", "clients", "margin", "lost", "unmarked"),
)
UNKNOWN: Final = "unknown"


class WrongSettings(ValueError):
    """An invalid setting."""


@dataclass(frozen=True)
class FleetSettings:
    """`since`, `until`: incidents that begin in [since, until), us UTC; None: all.

    `split`: us UTC of a change, or `version`: each version with the one before it; None: by version if there are any.
    `near_ms`: a margin below it is worth a word.  `seed`, `resamples` (bootstrap), `shuffles` (tests): chance.
    `alpha`: the chance of a false alarm over all comparisons of one pair; `smallest`: fewer on a side are not compared.
    """

    since: int | None = None
    until: int | None = None
    split: int | str | None = None
    near_ms: float = 50.0
    seed: int = 1
    resamples: int = 2000
    shuffles: int = 10_000
    alpha: float = 0.05
    smallest: int = 8

    def __post_init__(self) -> None:
        """Raises WrongSettings."""
        if isinstance(self.split, str) and self.split != "version":
            raise WrongSettings(f"split {self.split!r}, wanted 'version' or a time in us")
        for name in ("resamples", "shuffles", "smallest"):
            if getattr(self, name) < 1:
                raise WrongSettings(f"{name} {getattr(self, name)}, wanted 1 or more")
        if not 0 < self.alpha < 1:
            raise WrongSettings(f"alpha {self.alpha}, wanted a number between 0 and 1")


def summary(rows: Iterable[Row], settings: FleetSettings | None = None) -> dict[str, Any]:
    """The fleet document.  Rows may name an incident twice."""
    settings = settings or FleetSettings()
    chosen = [row for row in merged(rows) if _is_chosen(row, settings)]
    groups = _groups(chosen)
    times = [row["begin"] for row in chosen]
    return {
        "format": FORMAT,
        "settings": asdict(settings),
        "period": {"begin": min(times, default=None), "end": max(times, default=None)},
        "clusters": len({row["cluster"] for row in chosen}),
        "count": len(chosen),
        "types": dict(sorted(Counter(row["type"] for row in chosen).items())),
        "versions": _versions(chosen),
        "durations": [_duration(group, name, of, settings) for group, of in groups.items() for name in METRICS],
        "survival": [_survival(group, name, of) for group, of in groups.items() for name in SURVIVED],
        "margins": margins(chosen, settings.near_ms, settings.seed, settings.shuffles),
        "comparisons": _comparisons(chosen, settings),
        "messages": _messages(chosen),
        "by_cluster": _by_cluster(chosen),
        "incidents": chosen,
    }


def _is_chosen(row: Row, settings: FleetSettings) -> bool:
    begin = row["begin"]
    return (settings.since is None or begin >= settings.since) and (settings.until is None or begin < settings.until)


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {ALL: [row for row in rows if row["type"] in NEEDS_PRIMARY and not row["planned"]]}
    for type_ in sorted({row["type"] or UNKNOWN for row in rows}):
        found[type_] = [row for row in rows if (row["type"] or UNKNOWN) == type_]
    return found


def _versions(rows: Sequence[Row]) -> dict[str, int]:
    return dict(Counter(row["version"] for row in rows if row["version"]))  # by time of the first one


# ---- how long -------------------------------------------------------------------------------------------------------


def _duration(group: str, name: str, rows: Sequence[Row], settings: FleetSettings) -> dict[str, Any]:
    """`censored` never ended; `unbounded`: the clocks are unknown; neither is in the quantiles."""
    known = [row for row in rows if row[f"{name}_us"] is not None and row[f"{name}_lo_us"] is not None]
    values, lower, upper = (sorted(row[f"{name}{part}"] for row in known) for part in ("_us", "_lo_us", "_hi_us"))
    found: dict[str, Any] = {
        "group": group,
        "metric": name,
        "n": len(known),
        "censored": sum(row[f"{name}_us"] is None and row[f"{name}_lo_us"] is not None for row in rows),
        "unbounded": sum(row[f"{name}_us"] is not None and row[f"{name}_lo_us"] is None for row in rows),
        "unknown": sum(row[f"{name}_us"] is None and row[f"{name}_lo_us"] is None for row in rows),
        "mean_us": round(sum(values) / len(values)) if values else None,
        "least_us": values[0] if values else None,
        "most_us": values[-1] if values else None,
    }
    for word, share in SHARES.items():
        limits = quantiles.interval(lower, upper, share, settings.seed, settings.resamples)
        found |= {
            f"{word}_us": round(quantiles.quantile(values, share)) if values else None,
            f"{word}_lo_us": round(limits[0]) if limits else None,
            f"{word}_hi_us": round(limits[1]) if limits else None,
            f"{word}_firm": quantiles.firm(len(values), share),
        }
    return found


def _survival(group: str, name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """`steps`: [us, share that is not over, its limits, how many were at risk]."""
    over = [(row[f"{name}_us"], True) for row in rows if row[f"{name}_us"] is not None]
    open_ = [(row[f"{name}_lo_us"], False) for row in rows if row[f"{name}_us"] is None]
    times = over + [(at, False) for at, _ in open_ if at is not None]
    steps = survival.curve(times)
    return {
        "group": group,
        "metric": name,
        "n": len(times),
        "never": len(times) - len(over),
        "median_us": survival.reached(steps, 0.5),
        "p95_us": survival.reached(steps, 0.95),
        "steps": [
            [step.at, *(round(value, 6) for value in (step.open, step.low, step.high)), step.at_risk] for step in steps
        ],
    }


# ---- what has changed -----------------------------------------------------------------------------------------------

_Side = tuple[str, list[Row]]


def _comparisons(rows: Sequence[Row], settings: FleetSettings) -> list[dict[str, Any]]:
    found = []
    for before, after in _pairs(rows, settings.split):
        tested = [_compared(name, before, after, settings) for name in COMPARED]
        judged = [row for row in tested if row["p"] is not None]
        for row, p in zip(judged, compare.holm(row["p"] for row in judged), strict=True):
            row["p_corrected"] = p
            row["verdict"] = _verdict(row, settings.alpha)
        found += tested
    return found


def _pairs(rows: Sequence[Row], split: int | str | None) -> list[tuple[_Side, _Side]]:
    if isinstance(split, int):
        before, after = ([row for row in rows if (row["begin"] >= split) == late] for late in (False, True))
        return [(("before", before), ("after", after))]
    sides = [(name, [row for row in rows if row["version"] == name]) for name in _versions(rows)]
    return list(pairwise(sides))


def _compared(name: str, before: _Side, after: _Side, settings: FleetSettings) -> dict[str, Any]:
    """`n_before`, `n_after`, medians: of those that can be compared."""
    values = [[value for row in rows if (value := _value(name, row))] for _, rows in (before, after)]
    pairs = compare.alike(values[0], values[1])
    sides = [[value for pair in pairs for value in pair[side]] for side in (0, 1)]
    strata = {pair[0][0].stratum for pair in pairs}
    row: dict[str, Any] = {"metric": name, "before": before[0], "after": after[0], "p": None, "p_corrected": None}
    row |= {"n_before": len(sides[0]), "n_after": len(sides[1]), "verdict": "too few", "direction": 0}
    row |= {"median_before": _middle(name, before[1], strata), "median_after": _middle(name, after[1], strata)}
    if min(map(len, sides)) >= settings.smallest:
        found = compare.difference(sides[0], sides[1], settings.seed, settings.shuffles)
        if found is not None:
            row |= {"p": found[0], "direction": found[1]}
    return row


def _value(name: str, row: Row) -> compare.Value | None:
    if name in ("lost", "unmarked"):
        return None if row[name] is None else compare.Value(row[name], row[name], _stratum(row))
    low, high, at = (row[column] for column in _columns(name))
    if low is None or (at is not None and high is None):
        return None
    return compare.Value(low, math.inf if high is None else high, _stratum(row))


def _stratum(row: Row) -> tuple[str, str]:
    return row["cluster"] or "", row["type"] or UNKNOWN


def _columns(name: str) -> tuple[str, str, str]:
    """(lo, hi, best)"""
    if name == "margin":
        return "margin_lo_ms", "margin_hi_ms", "margin_ms"
    return f"{name}_lo_us", f"{name}_hi_us", f"{name}_us"


def _middle(name: str, rows: Sequence[Row], strata: Collection[Hashable]) -> float | None:
    """The median of what is known; us, ms for the margin, messages for the rest."""
    column = name if name in ("lost", "unmarked") else _columns(name)[2]
    values = sorted(row[column] for row in rows if row[column] is not None and _stratum(row) in strata)
    return round(quantiles.quantile(values, 0.5), 3) if values else None


def _verdict(row: dict[str, Any], alpha: float) -> str:
    if row["p_corrected"] > alpha or row["direction"] == 0:
        return "no difference shown"
    worse = row["direction"] < 0 if row["metric"] == "margin" else row["direction"] > 0
    return "worse" if worse else "better"


# ---- sums -----------------------------------------------------------------------------------------------------------


def _messages(rows: Sequence[Row]) -> dict[str, int]:
    """`silent`: incidents about which no client's log says anything."""
    known = [row for row in rows if row["attempts"] is not None]
    sums = {name: sum(row[name] or 0 for row in known) for name in SUMS}
    return {**sums, "incidents": len(known), "silent": len(rows) - len(known)}


def _by_cluster(rows: Sequence[Row]) -> list[dict[str, Any]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["cluster"] or ""].append(row)
    return sorted((_cluster(name, of) for name, of in groups.items()), key=_badness)


def _cluster(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    def total(column: str) -> int | None:
        known = [row[column] for row in rows if row[column] is not None]
        return sum(known) if known else None

    def count(wanted: Callable[[Row], bool]) -> int:
        return sum(map(wanted, rows))

    services = [row["service_us"] for row in rows if row["service_us"] is not None]
    return {
        "cluster": name,
        "incidents": len(rows),
        "failovers": count(lambda row: bool(row["failover"])),
        "planned": count(lambda row: bool(row["planned"])),
        "dual_certain": count(lambda row: bool(row["dual"] == "certain")),
        "dual_possible": count(lambda row: bool(row["dual"] == "possible")),
        "never_recovered": count(lambda row: row["service_us"] is None and row["service_lo_us"] is not None),
        "lost": total("lost"),
        "unaccounted": total("unaccounted"),
        "unmarked": total("unmarked"),
        "any_down_us": total("any_down"),
        "longest_service_us": max(services, default=None),
        "mean_service_us": round(sum(services) / len(services)) if services else None,
    }


def _badness(row: dict[str, Any]) -> tuple[Any, ...]:
    worst = ("dual_certain", "lost", "never_recovered", "dual_possible", "unmarked", "any_down_us")
    return (*(-(row[name] or 0) for name in (*worst, "longest_service_us", "incidents")), row["cluster"])
