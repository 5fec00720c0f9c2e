"""Two incidents side by side, phase by phase (pure).

A change is B's length minus A's.  Both lengths have bounds, so the change is certainly between B's least minus A's
greatest and B's greatest minus A's least.  If 0 is not between them the change is larger than its error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.cli import limits, output
from spark_jobs.cli.documents import Document
from spark_jobs.cli.limits import Measure
from spark_jobs.report.units import duration, signed
from spark_jobs.solve.phases import NAMES

LONGER, SHORTER, SAME, NOT_SURE, ONLY_A, ONLY_B, NEITHER = (
    *("longer", "shorter", "same", "within the error", "only in A", "only in B", "in neither"),
)
COUNTS: Final = (*limits.MESSAGES, "duplicated", "recovered")
WORDS: Final = ("type", "old_primary", "new_primary", "promotions", "dual")


@dataclass(frozen=True)
class Change:
    """us; `lo` and `hi`: the change is certainly between them, None if an error is not known."""

    what: str
    a: int | None
    b: int | None
    lo: int | None
    hi: int | None

    @property
    def by(self) -> int | None:
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def verdict(self) -> str:
        if self.by is None:
            return NEITHER if self.a is None and self.b is None else ONLY_B if self.a is None else ONLY_A
        if self.lo is None or self.hi is None or self.lo <= 0 <= self.hi:
            return SAME if self.lo == self.hi == 0 else NOT_SURE
        return LONGER if self.lo > 0 else SHORTER

    def row(self) -> dict[str, Any]:
        numbers = {"a_us": self.a, "b_us": self.b, "change_us": self.by, "change_lo_us": self.lo}
        return {"what": self.what, **numbers, "change_hi_us": self.hi, "verdict": self.verdict}


def change(what: str, a: Measure, b: Measure) -> Change:
    if a.value is None or b.value is None or None in (a.lo, a.hi, b.lo, b.hi):
        return Change(what, a.value, b.value, None, None)
    return Change(what, a.value, b.value, (b.lo or 0) - (a.hi or 0), (b.hi or 0) - (a.lo or 0))


def changes(a: Document, b: Document) -> list[Change]:
    """Every phase, then the clients' outages, whose error is negligible, since each client used one clock."""
    found = [change(name, limits.phase(a, name), limits.phase(b, name)) for name in NAMES]
    for name, measure in (("outage", limits.outage), ("all clients down", limits.all_down)):
        found.append(change(name, _exact(measure(a)), _exact(measure(b))))
    return found


def _exact(measure: Measure) -> Measure:
    return Measure(measure.value, measure.value, measure.value)


def counts(a: Document, b: Document) -> list[tuple[str, int | None, int | None]]:
    """Of messages: name, A's, B's."""
    return [(name, limits.messages(a, name).value, limits.messages(b, name).value) for name in COUNTS]


def words(a: Document, b: Document) -> list[tuple[str, str, str]]:
    """Properties of the two incidents: name, A's, B's."""
    return [(name, _word(a.incident, name), _word(b.incident, name)) for name in WORDS]


def _word(incident: Mapping[str, Any], name: str) -> str:
    value = incident.get(name)
    return "" if value is None else str(value)


def told(a: Document, b: Document) -> list[str]:
    """As tables."""
    rows = [_cells(row) for row in changes(a, b) if row.verdict != NEITHER]
    heads = ("phase", "A", "B", "change", "+-", "verdict")
    lines = output.table(heads, rows, heads[1:5])
    numbers = [(name, _count(one), _count(other)) for name, one, other in counts(a, b)]
    lines += ["", *output.table(("messages", "A", "B"), numbers, ("A", "B"))]
    return [*lines, "", *output.table(("incident", "A", "B"), words(a, b))]


def _cells(row: Change) -> tuple[str, ...]:
    lengths = (duration(row.a), duration(row.b), signed(row.by))
    return (row.what, *lengths, error(row), row.verdict)


def error(row: Change) -> str:
    """Half of the width of the bounds."""
    return output.UNKNOWN if row.lo is None or row.hi is None else duration((row.hi - row.lo + 1) // 2)


def _count(number: int | None) -> str:
    return output.UNKNOWN if number is None else str(number)
