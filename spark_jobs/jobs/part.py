"""Some clusters of a workspace, computed apart and put back: what is known of the others stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark_jobs.engine import delta
from spark_jobs.engine.base import Engine
from spark_jobs.jobs.eras import Era, waves
from spark_jobs.schema import day, ddl
from spark_jobs.sql.rows import quoted
from spark_jobs.workspace import DELTA, Workspace

FOLDER: Final = "part"
"""Of the workspace, for what is computed apart."""
GIVEN: Final = frozenset({"events_raw", "files", "notes"})
"""What ingest wrote, and jobs read."""
MOMENTS: Final = {
    "facts": "ts_wall", "pairs": "sent", "clock_segments": "t0", "events": "ts_est", "takings": "first_ts",
    "message_lives": "coalesce(sent, delivered, confirmed)", "outages": "ts_begin", "primary_spans": "from_est",
    "message_verdicts": "coalesce(sent, delivered, confirmed)", "gaps": "{begin}",
}  # fmt: skip
"""Table → µs of a row's day, if no incident says it."""


@dataclass(frozen=True)
class Part(Workspace):
    """`place` gets the tables that are made; what ingest wrote is read from `whole`, and of that only `clusters`; None:
    all; and only `eras` of them, if there are any.  `gone`: eras that it replaces as well, None: everything."""

    whole: Workspace
    clusters: tuple[str, ...] | None
    eras: tuple[Era, ...] = ()
    gone: tuple[Era, ...] | None = ()

    def has(self, engine: Engine, table: str) -> bool:
        return self.whole.has(engine, table) if table in GIVEN else super().has(engine, table)

    def load(self, engine: Engine, *tables: str) -> None:
        for table in tables:
            if table in GIVEN:
                self._given(engine, table)
            else:
                super().load(engine, table)

    def _given(self, engine: Engine, table: str) -> None:
        path = self.whole.path(table)
        if self.eras and table == "events_raw" and delta.is_table(path):
            delta.load(engine, table, path, ddl(), only=near(path, self.eras))
        else:
            self.whole.load(engine, table)
        wanted = [] if self.clusters is None else [among(self.clusters)]
        if self.eras and table in _FILE:
            rows = [{"of_cluster": era.cluster, "of_file": file} for era in self.eras for file in era.files]
            engine.table("era_files", "of_cluster string, of_file string", rows)
            same = "and of_cluster = coalesce(cluster, '')" if table == "events_raw" else ""
            wanted.append(f"exists (select 1 from era_files where of_file = {_FILE[table]} {same})")
        if wanted:
            engine.narrow(table, " and ".join(wanted))

    def replaces(self, cluster: str | None, day: str | None) -> bool:
        """Is a row of this cluster and day made anew?"""
        name = cluster or ""
        if self.gone is None:
            return True
        if not self.eras:
            return self.clusters is None or name in self.clusters
        eras = [era for era in (*self.eras, *self.gone) if era.cluster == name]
        return bool(eras) if day is None else any(era.first <= day <= era.last for era in eras)


_FILE: Final = {"events_raw": "file", "files": "name"}


def near(path: str, eras: Iterable[Era]) -> list[str]:
    """Parquet files that may have rows of them."""
    days, names = delta.spans(path, "ts_wall"), delta.spans(path, "cluster")
    dated = {file: (day(low), day(high)) for file, (low, high) in days.items()}
    return [
        file for file in delta.files(path)
        if file not in dated or file not in names
        or any((not era.cluster or names[file][0] <= era.cluster <= names[file][1])
               and era.meets(Era(era.cluster, *dated[file])) for era in eras)
    ]  # fmt: skip


def of(workspace: Workspace, clusters: Iterable[str] | None = None) -> Part:
    return Part(_beside(workspace), workspace, None if clusters is None else tuple(sorted(clusters)))


def of_eras(workspace: Workspace, eras: Iterable[Era], gone: tuple[Era, ...] | None) -> list[Part]:
    """One after the other; `gone`: what the first one replaces as well, None: all that there is."""
    return [
        Part(_beside(workspace), workspace, tuple(era.cluster for era in wave), wave, () if turn else gone)
        for turn, wave in enumerate(waves(eras))
    ]


def _beside(workspace: Workspace) -> str:
    return f"{workspace.place.rstrip('/')}/{FOLDER}"


def among(clusters: Iterable[str]) -> str:
    """Condition; rows that name no cluster are of the one without a name."""
    return f"coalesce(cluster, '') in ({quoted(clusters)})"


def merge(engine: Engine, part: Part, tables: Iterable[str]) -> None:
    """The part's tables in place of what the whole had of its clusters.

    A job that is interrupted here must compute everything anew: of the tables some may be replaced.  A table is
    replaced at once; one of plain Parquet by Spark is not."""
    engine = engine.large()
    engine.view("days", "select cast(null as string) as of_incident, cast(null as string) as day where 1 = 0")
    for table in sorted(tables, key=lambda name: name != "incidents"):
        engine.load("made", part.path(table))
        if part.whole.format == DELTA:
            _replace(engine, part, table)
        else:
            _rewrite(engine, part, table)


def _replace(engine: Engine, part: Part, table: str) -> None:
    """Folders of the part's clusters, in one commit."""
    if table == "incidents":
        rows = engine.rows(f"select incident as of_incident, {_day(engine, '{begin}')} as day from made")
        engine.table("days", "of_incident string, day string", rows)
    own = _day(engine, MOMENTS[table]) if table in MOMENTS else "cast(null as string)"
    source = "made"
    if "incident" in engine.columns("made"):
        own, source = f"coalesce(day, {own})", "made left join days on of_incident = incident"
    if part.eras:
        rows = [{"of_cluster": era.cluster, "first": era.first, "last": era.last} for era in part.eras]
        engine.table("era_days", "of_cluster string, first string, last string", rows)
        first, last = engine.quoted("first"), engine.quoted("last")
        own = f"nullif(greatest({first}, least({last}, coalesce({own}, {first}))), '')"  # clocks differ at midnight
        source += " left join era_days on of_cluster = coalesce(cluster, '')"
    engine.view("dated", f"select made.*, {own} as date from {source}")
    delta.merge(engine, "dated", part.whole.path(table), part.replaces)


def _day(engine: Engine, moment: str) -> str:
    moment = moment.format(begin=engine.quoted("begin"))
    return f"substring(cast(timestamp_micros({moment}) as string), 1, 10)"


def _rewrite(engine: Engine, part: Part, table: str) -> None:
    query = "select * from made"
    if part.whole.has(engine, table):
        part.whole.load(engine, table)
        kept = "1 = 0" if part.clusters is None else f"not ({among(part.clusters)})"
        query += f" union all select * from {table} where {kept}"
    engine.save(query, part.path("scratch"))  # first under another name: Spark cannot replace a table that it reads
    engine.load("merged", part.path("scratch"))
    part.whole.save(engine, table, "select * from merged")
