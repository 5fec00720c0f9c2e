"""The input of a parser in addition to the lines, and its counts (pure).

An unusable line is counted and named, and never fatal: logs of a crash are torn, and one bad line must not prevent the
report.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Final

from spark_jobs.parse.almanac import Almanac, Note
from spark_jobs.schema import Event

NAMED: Final = 100
"""So many faults are kept with their place; all are counted."""
_SHOWN: Final = 120  # characters of a faulty line


@dataclass(frozen=True)
class Fault:
    """`value` was found where `wanted` was expected."""

    file: str
    line_no: int
    value: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line_no}: found {self.value!r}, expected {self.wanted}"


@dataclass
class Tally:
    """Numbers of lines, and of events made of them; `unknown`: sound lines that say nothing we know.

    `unknown_by`: the same for each daemon; `continued`: lines without a head; `dropped`: lines that the system log
    says it did not write; `undated`: events of unknown year; `notes`: assumptions about time.
    """

    lines: int = 0
    events: int = 0
    unknown: int = 0
    torn: int = 0
    faulty: int = 0
    continued: int = 0
    dropped: int = 0
    undated: int = 0
    unknown_by: Counter[str] = field(default_factory=Counter)
    notes: list[Note] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, file: str, line_no: int, value: object, wanted: str) -> None:
        self.faulty += 1
        if len(self.faults) < NAMED:
            self.faults.append(Fault(file, line_no, _shown(value), wanted))


@dataclass
class Context:
    """`node`, `cluster`: for lines that name none.  `mtime`: of the file, µs since 1970; 0 if unknown.  `zone`: of the
    local times in the text; None if unknown (then they are read as UTC).  `almanac`: what all files of a bundle say
    together about zones and years; None if there is only this file."""

    cluster: str = ""
    node: str = ""
    mtime: int = 0
    zone: tzinfo | None = None
    almanac: Almanac | None = None
    tally: Tally = field(default_factory=Tally)


def torn(name: str, line_no: int, text: bytes, known: Event) -> Event:
    """The row of a last line without its end; `known`: source and what else is known of who wrote it."""
    attrs = {"octets": str(len(text))}
    raw = text.decode(errors="replace")
    return {**known, "kind": "torn", "attrs": attrs, "file": name, "line_no": line_no, "raw": raw}


def _shown(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
