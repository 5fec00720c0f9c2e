"""Sums over rows of the small tables (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from spark_jobs.schema import APART

Row = dict[str, Any]
COUNTED: Final = (
    "messages", "attempts", "confirmed", "ok", "lost", "unaccounted", "explained", "unexpected", "unlogged",
    "duplicated", "redelivered", "resend", "unmarked", "recovered", "refused", "unknown", "resends", "anonymous",
)  # fmt: skip
SLOWEST: Final = 20
FAULTS_SHOWN: Final = 100
_FILES: Final = ("octets", "lines", "events", "unknown", "torn", "faulty", "dropped", "undated", "covered")


def by_queue(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row for each queue, over incidents."""
    groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        counter = groups[row["cluster"] or "", row["queue"] or ""]
        counter.update({name: row[name] or 0 for name in COUNTED if name in row})
    return [{"cluster": cluster, "queue": queue, **groups[cluster, queue]} for cluster, queue in sorted(groups)]


def total(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {name: sum(row.get(name) or 0 for row in rows) for name in COUNTED}


def causes(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """verdict, cause, messages; the most first."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found[row["verdict"], row["cause"]] += row["messages"]
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [{"verdict": verdict, "cause": cause, "messages": count} for (verdict, cause), count in ordered]


def outages(rows: Sequence[Row], clients: Sequence[Mapping[str, Any]]) -> Row:
    """Of all clients; `clients`: rows with clients, how many wrote anything."""
    longest = sorted(rows, key=lambda row: (row["ts_begin"] - row["ts_end"], row["client_id"] or ""))
    return {
        "clients": sum(row["clients"] for row in clients),
        "count": len(rows),
        "longest_us": longest[0]["ts_end"] - longest[0]["ts_begin"] if longest else 0,
        "sum_us": sum(row["ts_end"] - row["ts_begin"] for row in rows),
        "never_back": sum(bool(row["censored"]) for row in rows),
        "slowest": longest[:SLOWEST],
    }


def ingest(files: Sequence[Row], faults: Iterable[Row], notes: Iterable[Row]) -> Row:
    """What was read of `files`.  `refused`: logs that could not be read to their end, and why; `others`: files that are
    no logs; `faults`: the first lines that are wrong; `covered`: lines that a better log says, too; `removed`: days of
    which nothing is known any more, and lines that came too late to be in any conclusion."""
    notes = list(notes)
    read = [row for row in files if row["state"] not in ("refused", "other", "copy")]
    names = {row["name"] for row in files}
    sums = {name: sum(row.get(name) or 0 for row in read) for name in _FILES}
    return {
        "files": len(read),
        **sums,
        "faults": [row for row in faults if row["file"] in names][:FAULTS_SHOWN],
        "refused": [row for row in files if row["state"] in ("refused", "damaged")],
        "others": [row["name"] for row in files if row["state"] == "other"],
        "read": read,
        "notes": [row for row in notes if row["certainty"] not in APART],
        "removed": [f"{row['cluster']}: {row['text']}" for row in notes if row["certainty"] in APART],
    }


# ---- the number of clients in an outage at each moment ---------------------------------------------------------------

STEPS_SHOWN: Final = 400
Step = tuple[int, int]
"""(us, clients that are down from then on)"""


def lane(outages: Iterable[Mapping[str, Any]], clients: int | None) -> dict[str, Any]:
    """clients (those that existed; at least those that stood still), and the steps."""
    rows = list(outages)
    seen = len({row["client_id"] for row in rows})
    return {"clients": max(clients or 0, seen), "steps": [list(step) for step in thinned(steps(rows))]}


def steps(outages: Iterable[Mapping[str, Any]]) -> list[Step]:
    changes: dict[int, int] = defaultdict(int)
    for row in outages:
        changes[row["ts_begin"]] += 1
        changes[row["ts_end"]] -= 1
    found: list[Step] = []
    down = 0
    for moment in sorted(changes):
        down += changes[moment]
        if not found or found[-1][1] != down:
            found.append((moment, down))
    return found


def thinned(found: Sequence[Step], most: int = STEPS_SHOWN) -> list[Step]:
    """At most `most`: of each stretch of time the greatest, so that no peak is lost; the last one stays as it is."""
    if len(found) <= most:
        return list(found)
    begin, end = found[0][0], found[-1][0]
    width = (end - begin) / (most - 1) or 1
    buckets: dict[int, Step] = {}
    for moment, down in found[:-1]:
        index = min(most - 2, int((moment - begin) / width))
        kept = buckets.get(index)
        buckets[index] = (kept[0], max(kept[1], down)) if kept else (moment, down)
    return [*(buckets[index] for index in sorted(buckets)), found[-1]]
