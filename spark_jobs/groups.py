"""One pure function for each cluster: in Spark's tasks if there are several, else in this process.

To tasks rows travel as JSON text (cluster, view, json), so one exchange serves views of any columns.  The function gets
the same dictionaries everywhere: what is NULL is absent.  A cluster whose function fails costs its own tables only.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from spark_jobs.engine.base import Engine, Row
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.workspace import Workspace

Views = Mapping[str, Sequence[Row]]
Solver = Callable[[str, Views], Mapping[str, Iterable[Row]]]
"""(cluster, view → rows in any order) → table → rows; a function of a module, or a `partial` of one."""
FAILED: Final = "failed"
FAILURES: Final = "cluster string, kind string, text string"
"""Columns of the table `STEP_failures`: a solver's notes, and the clusters for which it failed (kind FAILED)."""
FEW: Final = 50_000
"""So many rows of all tables go through this process although tasks made them: a table costs Spark a job."""
_PACKED: Final = "cluster string, name string, json string"


def failures(step: str) -> str:
    """The table's name."""
    return f"{step}_failures"


def per_cluster(
    engine: Engine,
    workspace: Workspace,
    step: str,
    queries: Mapping[str, str],
    solver: Solver,
    tables: Mapping[str, str],
) -> None:
    """Writes and loads `tables` (name → columns in Spark's DDL) and `failures(step)`.

    `queries`: view → query with the column `cluster`.  The view `clusters` (cluster) tells whether there are several;
    it need not be complete."""
    wanted = {**tables, failures(step): FAILURES}
    if isinstance(engine, SparkEngine) and len(engine.rows("select cluster from clusters limit 2")) > 1:
        _in_tasks(engine, workspace, queries, _task(step, solver, tuple(queries)), wanted)
    else:
        rows = {name: engine.rows(query) for name, query in queries.items()}
        _keep(engine, workspace, _here(step, solver, queries, rows), wanted)


def _here(
    step: str, solver: Solver, queries: Mapping[str, str], rows: dict[str, list[Row]]
) -> Iterator[tuple[str, Row]]:
    found: dict[str, dict[str, list[Row]]] = defaultdict(lambda: {name: [] for name in queries})
    for name in queries:
        for row in rows.pop(name):
            found[row["cluster"]][name].append(_told(row))
    for cluster in sorted(found):
        yield from _solved(step, solver, cluster, found.pop(cluster))


def _told(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def _keep(engine: Engine, workspace: Workspace, rows: Iterable[tuple[str, Row]], tables: Mapping[str, str]) -> None:
    found: dict[str, list[Row]] = {table: [] for table in tables}
    for table, row in rows:
        found[table].append(row)
    for table, columns in tables.items():
        engine.keep(workspace.path(table), columns, found[table])
    workspace.load(engine, *tables)


def _in_tasks(
    engine: SparkEngine,
    workspace: Workspace,
    queries: Mapping[str, str],
    task: Callable[[Iterable[Row]], Iterator[tuple[str, str, str]]],
    tables: Mapping[str, str],
) -> None:
    """As `applyInArrow` for each cluster; that, and `mapInArrow`, need pandas.  Views, so that of what DuckDB answers
    Spark gets the answer, not the tables."""
    for name, query in queries.items():
        engine.view(f"given_{name}", query)
    packed = "select v.cluster, '{0}' as name, to_json(struct(v.*)) as json from given_{0} as v"
    together = engine.frame(" union all ".join(map(packed.format, queries)))
    by_cluster = together.repartition("cluster").sortWithinPartitions("cluster")
    large, scratch = engine.large(), workspace.path("scratch")
    large.named("solved", engine.session.createDataFrame(by_cluster.rdd.mapPartitions(task), _PACKED))
    large.save("select * from solved", scratch)
    large.load("scratch", scratch)
    if large.rows("select count(*) as n from scratch")[0]["n"] <= FEW:
        rows = large.rows("select name, json from scratch order by cluster", FEW)
        _keep(engine, workspace, ((row["name"], json.loads(row["json"])) for row in rows), tables)
        return
    for table, columns in tables.items():
        rows_of = f"select from_json(json, '{columns}') as r from scratch where name = '{table}'"
        large.save(f"select r.* from ({rows_of})", workspace.path(table))
    workspace.load(engine, *tables)


def _task(step: str, solver: Solver, names: Sequence[str]) -> Callable[[Iterable[Row]], Iterator[tuple[str, str, str]]]:
    """What a task does with its rows, which are sorted by cluster."""

    def solved(rows: Iterable[Row]) -> Iterator[tuple[str, str, str]]:
        for cluster, packed in groupby(rows, key=itemgetter("cluster")):
            views: dict[str, list[Row]] = {name: [] for name in names}
            for row in packed:
                views[row["name"]].append(_told(json.loads(row["json"])))
            for table, row in _solved(step, solver, cluster, views):
                yield cluster, table, json.dumps(row, ensure_ascii=False)

    return solved


def _solved(step: str, solver: Solver, cluster: str, views: Views) -> Iterator[tuple[str, Row]]:
    try:
        tables: Mapping[str, Iterable[Row]] = {table: list(rows) for table, rows in solver(cluster, views).items()}
    except Exception as error:  # any error: the other clusters get their tables, and this one a note in the report
        text = f"the step {step} failed for this cluster: {type(error).__name__}: {error}"
        tables = {failures(step): [{"cluster": cluster, "kind": FAILED, "text": text}]}
    for table, rows in tables.items():
        yield from ((table, row) for row in rows)
