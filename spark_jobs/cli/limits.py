"""The comparison of `check`: the measures of a document, limits, and verdicts (pure).

A measure has a value, or is not known.  A duration may have bounds of its error:

    breach    the value is beyond the limit
    unknown   the logs do not contain the value (a breach, unless it is allowed)
    possible  the value is within its limit, but with its error it may not be (a breach, if strict)
    ok

Counts of messages and clients' outages are those of the overview if there is one, since there are some outside of
incidents, too; each incident's own otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_jobs.cli.documents import Document
from spark_jobs.data import Row
from spark_jobs.report.units import duration, moment

BREACH, NOT_KNOWN, POSSIBLE, WITHIN = "breach", "unknown", "possible", "ok"
MESSAGES: Final = ("lost", "unaccounted", "unexpected", "unmarked")
UNREAD: Final = ("unrecognised",)
"""Kinds of gaps: a log that was not understood."""
NO_CLIENT: Final = "no client's log was read"


@dataclass(frozen=True)
class Limits:
    """Durations in us.  `dual`: no two primaries at once.  `phases`: name -> us.  `messages`: of MESSAGES -> count."""

    outage: int | None = None
    all_down: int | None = None
    total: int | None = None
    incidents: int | None = None
    dual: bool = False
    phases: Mapping[str, int] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self != Limits()


@dataclass(frozen=True)
class Measure:
    """`lo` and `hi`: what is certain, None if there is no error; `note`: why it is not known, or not exact."""

    value: int | None
    lo: int | None = None
    hi: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """`value` and `limit` in words; `us`: the numbers are durations."""

    about: str
    what: str
    level: str
    value: int | str | None
    limit: int | str
    us: bool = False
    note: str = ""

    def __str__(self) -> str:
        def word(number: int | str | None) -> str:
            if number is None:
                return "unknown"
            return duration(number) if self.us and isinstance(number, int) else str(number)

        note = f" ({self.note})" if self.note else ""
        return f"{self.about}: {self.what} {word(self.value)}, limit {word(self.limit)}: {self.level}{note}"

    def row(self) -> dict[str, Any]:
        unit = {"unit": "us"} if self.us else {}
        row = {"about": self.about, "what": self.what, "level": self.level, "value": self.value, "limit": self.limit}
        return {**row, **unit, "note": self.note}


def findings(documents: Sequence[Document], limits: Limits) -> list[Finding]:
    """One for each document and limit that belong together.  Raises UserError."""
    overviews = {document.path.parent for document in documents if document.is_overview}
    found: list[Finding] = []
    for document in documents:
        found += _of_all(document, limits) if document.is_overview else _of_incident(document, limits)
        if document.is_overview or document.path.parent not in overviews:
            found += _of_clients(document, limits)
    return found


def failed(finding: Finding, strict: bool, allow_unknown: bool) -> bool:
    if finding.level == NOT_KNOWN:
        return not allow_unknown
    return finding.level == BREACH or (strict and finding.level == POSSIBLE)


def _of_all(document: Document, limits: Limits) -> Iterator[Finding]:
    if limits.incidents is not None:
        yield _compared(document, "incidents", _incidents(document), limits.incidents)


def _incidents(document: Document) -> Measure:
    """A log that could not be understood may tell of more."""
    count = len(document.rows("incidents"))
    unread = [str(row.get("file")) for row in document.rows("gaps") if row.get("kind") in UNREAD]
    if not unread:
        return Measure(count)
    more = f" and {len(unread) - 1} more" if unread[1:] else ""
    return Measure(None, lo=count, note=f"{count} found; {unread[0]}{more} could not be read")


def _of_incident(document: Document, limits: Limits) -> Iterator[Finding]:
    if limits.all_down is not None:
        yield _compared(document, "all clients down", all_down(document), limits.all_down, True)
    if limits.total is not None:
        yield _compared(document, "total", total(document), limits.total, True)
    for name, limit in limits.phases.items():
        yield _compared(document, name, phase(document, name), limit, True)
    if limits.dual:
        yield _dual(document)


def _of_clients(document: Document, limits: Limits) -> Iterator[Finding]:
    if limits.outage is not None:
        measure = outage_of_all(document) if document.is_overview else outage(document)
        yield _compared(document, "outage", measure, limits.outage, True)
    for name, limit in limits.messages.items():
        yield _compared(document, name, messages(document, name), limit)


def _compared(document: Document, what: str, measure: Measure, limit: int, us: bool = False) -> Finding:
    measure = _of_what_is_kept(document, measure)
    return Finding(document.about, what, _level(measure, limit), measure.value, limit, us, measure.note)


def _of_what_is_kept(document: Document, measure: Measure) -> Measure:
    """Days that were removed may have had more of everything."""
    removed = (document.row("ingest") or {}).get("removed") if document.is_overview else None
    if not removed or measure.value is None:
        return measure
    return Measure(
        None, lo=measure.value if measure.lo is None else measure.lo, note=f"{measure.value} found; {removed[0]}"
    )


def _level(measure: Measure, limit: int) -> str:
    if measure.value is None:
        return BREACH if measure.lo is not None and measure.lo > limit else NOT_KNOWN
    if measure.value > limit:
        return BREACH
    return POSSIBLE if measure.hi is not None and measure.hi > limit else WITHIN


def _dual(document: Document) -> Finding:
    verdict = document.incident.get("dual")
    levels = {"certain": BREACH, "possible": POSSIBLE, "excluded": WITHIN, None: WITHIN}
    level = levels.get(verdict, NOT_KNOWN)
    worst = next((row for row in document.rows("dual") if row.get("verdict") == verdict), None)
    note = _pair(worst) if worst and level != WITHIN else ""
    return Finding(document.about, "two primaries", level, str(verdict or "excluded"), "excluded", note=note)


def _pair(row: Row) -> str:
    margin, error = row.get("margin_ms"), row.get("error_ms")
    known = f", margin {margin:.0f} ms +-{error or 0:.0f}" if isinstance(margin, int | float) else ""
    return f"{row.get('old_node')} and {row.get('new_node')}{known}"


# ---- measures -------------------------------------------------------------------------------------------------------


def outage(document: Document) -> Measure:
    """The longest of a client.  Of one that never came back only the least is known."""
    rows = document.rows("outages")
    if not rows:
        return Measure(None, note=NO_CLIENT) if document.row("outage_union") is None else Measure(0)
    longest = max(rows, key=_length)
    away = [row for row in rows if row.get("censored")]
    if away and not longest.get("censored"):
        return Measure(_length(longest), note=f"{_names(away)} never came back")
    note = f"{_names(away)} never came back, so at least" if away else str(longest.get("client_id") or "")
    return Measure(_length(longest), note=note)


def outage_of_all(document: Document) -> Measure:
    found = document.row("outages") or {}
    if not found.get("clients"):
        return Measure(None, note=NO_CLIENT)
    slowest, lost = found.get("slowest") or (), found.get("never_back")
    longest: Row = slowest[0] if slowest else {}
    note = f"{longest.get('client_id')} at {moment(longest.get('ts_begin'))}" if longest else ""
    return Measure(found.get("longest_us") or 0, note=f"{note}; {lost} never ended" if lost else note)


def _length(row: Row) -> int:
    return int(row["ts_end"]) - int(row["ts_begin"])


def _names(rows: Iterable[Row]) -> str:
    names = sorted({str(row.get("client_id")) for row in rows})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def all_down(document: Document) -> Measure:
    union = document.row("outage_union")
    return Measure(None, note=NO_CLIENT) if union is None else Measure(int(union.get("all_down") or 0))


def total(document: Document) -> Measure:
    """From the first sign of death to the last phase that is part of the service."""
    value = document.incident.get("total_us")
    return Measure(value, note="" if value is not None else "it was not over when the logs ended")


def phase(document: Document, name: str) -> Measure:
    row = next((row for row in document.rows("phases") if row.get("phase") == name), None)
    if row is None:
        return Measure(None, note="the document has no such phase")
    if row.get("censored") and row.get("duration_lo_us") is not None:
        least = row["duration_lo_us"]
        return Measure(None, least, None, f"not over when the logs ended, after {duration(least)}")
    if not row.get("known"):
        return Measure(None, note=str(row.get("note") or ""))
    return Measure(row.get("duration_us"), row.get("duration_lo_us"), row.get("duration_hi_us"), _error(row))


def _error(row: Row) -> str:
    lo, hi = row.get("duration_lo_us"), row.get("duration_hi_us")
    if lo is None or hi is None:
        return "its error is not known"
    return f"{duration(lo)} to {duration(hi)}" if lo != hi else ""


def messages(document: Document, name: str) -> Measure:
    """Unexpected messages whose producer's log is incomplete are no finding: they may have been sent."""
    total = (document.row("messages") or {}).get("total")
    if not isinstance(total, Mapping) or name not in total:
        return Measure(None, note=NO_CLIENT)
    value = int(total[name] or 0)
    return Measure(value - int(total.get("unlogged") or 0) if name == "unexpected" else value)
