"""`failover-report diff`: two incidents side by side, phase by phase.

A change is B's length minus A's.  Both lengths have bounds, so the change is certainly between B's least minus A's
greatest and B's greatest minus A's least.  If 0 is not between them the change is larger than its error.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spark_jobs.cli import limits, output
from spark_jobs.cli.documents import Document, one
from spark_jobs.cli.errors import OK
from spark_jobs.cli.limits import Measure
from spark_jobs.cli.values import number
from spark_jobs.report.units import duration, signed
from spark_jobs.solve.phases import NAMES

LONGER, SHORTER, SAME, NOT_SURE, ONLY_A, ONLY_B, NEITHER = (
    *("longer", "shorter", "same", "within the error", "only in A", "only in B", "in neither"),
)
COUNTS: Final = (*limits.MESSAGES, "duplicated", "recovered")
WORDS: Final = ("type", "old_primary", "new_primary", "promotions", "dual")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="PATH", type=Path, help="A: an incident-N.json, or OUT of a report")
    parser.add_argument("b", metavar="PATH", type=Path, help="B")
    parser.add_argument("--incident", type=number, metavar="N", help="of A, if that is a folder")
    parser.add_argument("--with", type=number, metavar="N", dest="other", help="of B, if that is a folder")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(options: argparse.Namespace) -> int:
    both = one(options.a, options.incident), one(options.b, options.other)
    output.show([as_json(*both)] if options.json else told(*both))
    return OK


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

    def cells(self) -> tuple[str, ...]:
        """The error is half of the width of the bounds."""
        unsure = output.UNKNOWN if self.lo is None or self.hi is None else duration((self.hi - self.lo + 1) // 2)
        return self.what, duration(self.a), duration(self.b), signed(self.by), unsure, self.verdict


def change(what: str, a: Measure, b: Measure) -> Change:
    if a.value is None or b.value is None or None in (a.lo, a.hi, b.lo, b.hi):
        return Change(what, a.value, b.value, None, None)
    return Change(what, a.value, b.value, (b.lo or 0) - (a.hi or 0), (b.hi or 0) - (a.lo or 0))


def changes(a: Document, b: Document) -> list[Change]:
    """Every phase, then the clients' outages, whose error is negligible, since each client used one clock."""
    found = [change(name, limits.phase(a, name), limits.phase(b, name)) for name in NAMES]
    for name, measure in (("outage", limits.outage), ("all clients down", limits.all_down)):
        exact = (Measure(value, value, value) for value in (measure(a).value, measure(b).value))
        found.append(change(name, *exact))
    return found


def counts(a: Document, b: Document) -> dict[str, list[int | None]]:
    """Of messages: name → A's, B's."""
    return {name: [limits.messages(each, name).value for each in (a, b)] for name in COUNTS}


def words(a: Document, b: Document) -> dict[str, list[str]]:
    """Properties of the two incidents: name → A's, B's."""
    return {name: [_text(each.incident.get(name), "") for each in (a, b)] for name in WORDS}


def _text(value: object, missing: str) -> str:
    return missing if value is None else str(value)


def told(a: Document, b: Document) -> list[str]:
    """As tables."""
    heads = ("phase", "A", "B", "change", "+-", "verdict")
    lines = output.table(heads, [row.cells() for row in changes(a, b) if row.verdict != NEITHER], heads[1:5])
    numbers = [[name, *(_text(count, output.UNKNOWN) for count in both)] for name, both in counts(a, b).items()]
    lines += ["", *output.table(("messages", "A", "B"), numbers, ("A", "B")), ""]
    return lines + output.table(("incident", "A", "B"), [[name, *both] for name, both in words(a, b).items()])


def as_json(a: Document, b: Document) -> str:
    return output.as_json(
        {
            "changes": [row.row() for row in changes(a, b)],
            "messages": {name: dict(zip("ab", both, strict=True)) for name, both in counts(a, b).items()},
            "incident": {name: dict(zip("ab", both, strict=True)) for name, both in words(a, b).items()},
        }
    )
