"""What ingest knows about each file, and the tables that hold it (pure but for `Catalog.load` and `save`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from spark_jobs.engine.base import Engine, Row
from spark_jobs.parse.context import NAMED, Fault
from spark_jobs.schema import REMOVED, day
from spark_jobs.workspace import Workspace

CATALOG: Final = "section string, json string"
PUBLIC: Final = {
    "files": "name string, input string, cluster string, kind string, state string, why string, octets bigint, "
    "lines bigint, events bigint, unknown bigint, torn bigint, faulty bigint, continued bigint, dropped bigint, "
    "undated bigint, covered bigint, first_ts bigint, last_ts bigint",
    "faults": "file string, line_no bigint, value string, wanted string",
    "notes": "cluster string, about string, text string, certainty string",
}
"""What other jobs may read."""
GIVEN: Final = "path string"
COUNTS: Final = ("lines", "events", "unknown", "torn", "faulty", "continued", "dropped", "undated")


@dataclass(frozen=True)
class Cover:
    """What one process said of itself in a segment: its text log of that time says nothing new.  Times as written, µs.
    `broker`: begin of the id that the text log's lines have instead of a name, if the segment says it."""

    node: str
    source: str
    proc: str
    first: int
    last: int
    broker: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.node, self.source, self.proc

    def joined(self, other: Cover | None) -> Cover:
        """With another part of the same process."""
        if other is None:
            return self
        first, last = min(self.first, other.first), max(self.last, other.last)
        return replace(self, first=first, last=last, broker=self.broker or other.broker)


@dataclass
class Resume:
    """Where a segment's last whole line ends, and what was counted up to there.  `seqs`: process → first, last."""

    octets: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)
    covers: list[Cover] = field(default_factory=list)
    first_ts: int | None = None
    last_ts: int | None = None
    seqs: dict[str, tuple[int, int]] = field(default_factory=dict)

    def cover(self, cover: Cover) -> None:
        """Enters what a process says of itself in some more lines."""
        known = {one.key: one for one in self.covers}
        known[cover.key] = cover.joined(known.get(cover.key))
        self.covers = [known[key] for key in sorted(known)]

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def of(text: str | None) -> Resume:
        found = json.loads(text) if text else {}
        covers = [Cover(**cover) for cover in found.pop("covers", ())]
        return Resume(covers=covers, **found)


@dataclass(frozen=True)
class State:
    """A file.  `state`: read, open (still being written), damaged (read up to there), given, copy (of a segment that is
    read), refused (it cannot be read), other (no log).  `head`: hash of what the
    file begins with.  `mtime`, `size`: as it lay there.  `part`: the Parquet file that has what may be replaced: all
    rows of a text log, those of a segment's unfinished last line."""

    name: str
    input: str
    cluster: str
    kind: str
    state: str = "read"
    why: str | None = None
    octets: int = 0
    lines: int = 0
    events: int = 0
    unknown: int = 0
    torn: int = 0
    faulty: int = 0
    continued: int = 0
    dropped: int = 0
    undated: int = 0
    covered: int = 0
    first_ts: int | None = None
    last_ts: int | None = None
    head: str = ""
    mtime: int = 0
    size: int = 0
    part: str | None = None
    resume: str | None = None


@dataclass
class Catalog:
    """Everything that ingest knows, in one table, because one table is written at once or not at all.

    `parts`: the Parquet files of events_raw that count; any other one there was left by a run that was cut off.
    `given`: folders of Parquet that are read as they are."""

    files: dict[str, State] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    notes: list[Row] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)

    @staticmethod
    def load(engine: Engine, workspace: Workspace) -> Catalog:
        found = Catalog()
        if not workspace.has(engine, "catalog"):
            return found
        workspace.load(engine, "catalog")
        for row in engine.rows("select section, json from catalog"):
            found._add(row["section"], json.loads(row["json"]))
        return found

    def _add(self, section: str, item: Any) -> None:
        if section == "files":
            self.files[item["name"]] = State(**item)
        elif section == "faults":
            self.faults.setdefault(item["file"], []).append(Fault(**item))
        else:
            getattr(self, section).append(item)

    def save(self, engine: Engine, workspace: Workspace) -> None:
        """First what counts, then what others read."""
        faults = [asdict(fault) for name in sorted(self.faults) for fault in self.faults[name]]
        files = [asdict(self.files[name]) for name in sorted(self.files)]
        notes = sorted(self.notes, key=lambda row: tuple(row.values()))
        sections: dict[str, list[Any]] = {
            "files": files, "faults": faults, "notes": notes, "parts": sorted(self.parts), "given": sorted(self.given)
        }  # fmt: skip
        rows = [
            {"section": section, "json": json.dumps(item, separators=(",", ":"))}
            for section, items in sections.items() for item in items
        ]  # fmt: skip
        engine.keep(workspace.path("catalog"), CATALOG, rows)
        for name, columns in PUBLIC.items():
            engine.keep(workspace.path(name), columns, sections[name])
        if self.given:
            engine.keep(workspace.path("given"), GIVEN, [{"path": path} for path in sorted(self.given)])

    def remove_before(self, moment: int) -> None:
        """Notes which clusters have lost days: what these held is not known any more.  µs."""
        clusters = {state.cluster for state in self.files.values() if (state.first_ts or moment) < moment}
        self.notes = [row for row in self.notes if row["certainty"] != REMOVED or row["cluster"] not in clusters]
        text = f"days before {day(moment)} were removed by maintain"
        self.notes += [
            {"cluster": name, "about": "removed days", "text": text, "certainty": REMOVED} for name in clusters
        ]

    def blame(self, name: str, faults: Iterable[Fault], since: int = 0) -> None:
        """Faults of a file from line `since` on, in place of those that were known there."""
        kept = [fault for fault in self.faults.pop(name, []) if fault.line_no < since]
        if found := [*kept, *faults][:NAMED]:
            self.faults[name] = found
