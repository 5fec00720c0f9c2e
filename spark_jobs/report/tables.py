"""The tables that a report reads from a workspace.  A missing table counts as empty: a partial report is still
useful."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from spark_jobs.engine.base import Engine
from spark_jobs.messages import query as messages
from spark_jobs.sql.rows import quoted
from spark_jobs.workspace import TABLES, Workspace

Row = dict[str, Any]
VERDICTS_SHOWN: Final = 1000
"""Messages of one incident that are named."""
_WORST_FIRST: Final = ("lost", "unexpected", "unaccounted", "duplicated", "explained", "recovered", "refused")


class Tables:
    """Rows in an order that depends on nothing but their content."""

    def __init__(self, engine: Engine, workspace: Workspace) -> None:
        self._engine, self._workspace = engine, workspace
        self._loaded: dict[str, bool] = {}

    def rows(self, table: str, query: str = "") -> list[Row]:
        """`query`: of the view with the table's name; by default all of it."""
        if not self._has(table):
            return []
        return sorted(map(_plain, self._asked(table, query)), key=_order)

    def _has(self, table: str) -> bool:
        if table not in self._loaded:
            if table not in TABLES or not self._workspace.has(self._engine, table):
                return False
            self._loaded[table] = False
        return True

    def _asked(self, table: str, query: str) -> list[Row]:
        if not self._loaded[table]:
            self._workspace.load(self._engine, table)
            self._loaded[table] = True
        return self._engine.rows(query or f"select * from {table}")

    def verdicts(self) -> list[Row]:
        """The first VERDICTS_SHOWN of each incident that are not ok, the worst first; `of_all`: how many there are."""
        rank = " ".join(f"when '{name}' then {number}" for number, name in enumerate(_WORST_FIRST))
        rank = f"case when cause = 'unmarked' then 1 else case verdict {rank} else 99 end end"
        numbered = f"row_number() over (partition by incident, cluster order by {rank}, sent, producer, pub) as place"
        query = f"""
select * from (
  select *, {numbered}, count(*) over (partition by incident, cluster) as of_all from message_verdicts
) where place <= {VERDICTS_SHOWN}"""
        return sorted(self.rows("message_verdicts", query), key=lambda row: row["place"])

    def causes(self) -> list[Row]:
        return self.rows("message_verdicts", messages.causes())

    def clients(self) -> list[Row]:
        """cluster, clients: how many wrote anything."""
        return self.rows(
            "takings", "select cluster, count(distinct client_id) as clients from takings group by cluster"
        )

    def observed(self) -> list[Row]:
        """cluster, begin, end (us) of all facts."""
        times = "min(ts_est) as begin, max(ts_est) as last"
        rows = self.rows("events", f"select coalesce(cluster, '') as cluster, {times} from events group by 1")
        return [{"cluster": row["cluster"], "begin": row["begin"], "end": row["last"]} for row in rows]

    def facts(self, kinds: Collection[str]) -> list[Row]:
        return self.rows("events", f"select * from events where kind in ({quoted(sorted(kinds))})")

    def facts_between(self, kinds: Collection[str], windows: Iterable[Row]) -> list[Row]:
        """`windows`: cluster, low, high (us)."""
        self._engine.table("report_windows", "cluster string, low bigint, high bigint", windows)
        inside = "w.cluster = coalesce(e.cluster, '') and e.ts_est between w.low and w.high"
        return self.rows(
            "events",
            f"select * from events as e where kind in ({quoted(sorted(kinds))}) "
            f"and exists (select 1 from report_windows as w where {inside})",
        )

    def facts_at(self, places: Iterable[tuple[str, str, int]]) -> list[Row]:
        """`places`: cluster, file, line."""
        rows = [{"cluster": cluster, "file": file, "line": line} for cluster, file, line in places]
        self._engine.table("report_places", "cluster string, file string, line bigint", rows)
        same = "p.cluster = coalesce(e.cluster, '') and p.file = e.file and p.line = e.line_no"
        return self.rows(
            "events", f"select * from events as e where exists (select 1 from report_places as p where {same})"
        )


def _plain(row: Row) -> Row:
    """Maps in the order of their keys."""
    return {name: dict(sorted(value.items())) if isinstance(value, dict) else value for name, value in row.items()}


_FIRST: Final = ("cluster", "ts_est", "begin", "ts_begin", "number", "name", "node", "file", "line_no", "queue")


def _order(row: Row) -> list[tuple[bool, float, str]]:
    """None last; numbers before texts."""
    names = [name for name in _FIRST if name in row] + sorted(name for name in row if name not in _FIRST)
    return [_sortable(row[name]) for name in names]


def _sortable(value: Any) -> tuple[bool, float, str]:
    if isinstance(value, int | float):
        return False, value, ""
    return value is None, float("inf"), "" if value is None else str(value)
